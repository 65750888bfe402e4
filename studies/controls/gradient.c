/* Loss and gradient of `toposcale.training.gpt.GPT` for tiny models, some five times as fast as PyTorch, whose calls cost
   more than the arithmetic at these sizes. Compiled by gradient.py with D (width), L (layers), H (heads), T (context) and V
   (vocabulary); tests/studies/test_controls.py compares it with PyTorch. A sequence at a time, so that all fits in a cache.
   Weights and gradient are vectors in the order of `GPT.parameters()`. */
#include <math.h>
#include <string.h>

#define HD (D / H)
#define F (4 * D)
#define BLOCK (2 * D + 3 * D * D + 3 * D + D * D + D + 2 * D + F * D + F + D * F + D)
#define SCALE (1.0f / sqrtf((float)HD))

typedef struct { const float *n1w, *n1b, *qkvw, *qkvb, *pw, *pb, *n2w, *n2b, *ew, *eb, *fw, *fb; } Layer;
typedef struct { float in[T][D], n1[T][D], r1[T], qkv[T][3 * D], p[H][T][T], att[T][D], mid[T][D], n2[T][D], r2[T], h[T][F], g[T][F]; } Cache;

static Layer layer_of(const float *w) {
    Layer l;
    l.n1w = w; w += D; l.n1b = w; w += D; l.qkvw = w; w += 3 * D * D; l.qkvb = w; w += 3 * D;
    l.pw = w; w += D * D; l.pb = w; w += D; l.n2w = w; w += D; l.n2b = w; w += D;
    l.ew = w; w += F * D; l.eb = w; w += F; l.fw = w; w += D * F; l.fb = w;
    return l;
}

/* y (T, m) = x (T, n) W^T + b, with W (m, n). */
static inline __attribute__((always_inline)) void linear(int n, int m, const float *restrict x, const float *restrict w, const float *restrict b, float *restrict y) {
    float wt[F * D > V * D ? F * D : V * D];
    for (int o = 0; o < m; o++) for (int i = 0; i < n; i++) wt[i * m + o] = w[o * n + i];
    for (int t = 0; t < T; t++) {
        float *restrict row = y + t * m;
        for (int o = 0; o < m; o++) row[o] = b ? b[o] : 0.0f;
        for (int i = 0; i < n; i += 4) {
            const float *restrict v = x + t * n + i, *restrict u = wt + i * m;
            for (int o = 0; o < m; o++) row[o] += v[0] * u[o] + v[1] * u[m + o] + v[2] * u[2 * m + o] + v[3] * u[3 * m + o];
        }
    }
}

/* Gradients of `linear`: dw and db are added to, dx is set. */
static inline __attribute__((always_inline)) void linear_back(int n, int m, const float *restrict x, const float *restrict w, const float *restrict dy,
                               float *restrict dw, float *restrict db, float *restrict dx) {
    float dwt[F * D > V * D ? F * D : V * D];
    memset(dwt, 0, sizeof(float) * n * m);
    for (int t = 0; t < T; t += 4) {
        const float *restrict g = dy + t * m;
        for (int i = 0; i < n; i++) {
            const float *restrict v = x + t * n + i;
            for (int o = 0; o < m; o++)
                dwt[i * m + o] += v[0] * g[o] + v[n] * g[m + o] + v[2 * n] * g[2 * m + o] + v[3 * n] * g[3 * m + o];
        }
        if (db) for (int o = 0; o < m; o++) db[o] += g[o] + g[m + o] + g[2 * m + o] + g[3 * m + o];
        float sums[4 * F];
        memset(sums, 0, sizeof(float) * 4 * n);
        for (int o = 0; o < m; o++) for (int k = 0; k < 4; k++) for (int i = 0; i < n; i++) sums[k * n + i] += g[k * m + o] * w[o * n + i];
        memcpy(dx + t * n, sums, sizeof(float) * 4 * n);
    }
    for (int o = 0; o < m; o++) for (int i = 0; i < n; i++) dw[o * n + i] += dwt[i * m + o];
}

/* normed (T, D) is what the affine map is applied to; r (T,) the reciprocal deviations. */
static void norm(const float *x, const float *w, const float *b, float *normed, float *r, float *y) {
    for (int t = 0; t < T; t++) {
        float mean = 0, variance = 0;
        for (int i = 0; i < D; i++) mean += x[t * D + i];
        mean /= D;
        for (int i = 0; i < D; i++) { float c = x[t * D + i] - mean; variance += c * c; }
        r[t] = 1.0f / sqrtf(variance / D + 1e-5f);
        for (int i = 0; i < D; i++) { normed[t * D + i] = (x[t * D + i] - mean) * r[t]; y[t * D + i] = normed[t * D + i] * w[i] + b[i]; }
    }
}

/* dx (T, D) is added to. */
static void norm_back(const float *normed, const float *r, const float *w, const float *dy, float *dw, float *db, float *dx) {
    for (int t = 0; t < T; t++) {
        float a = 0, c = 0;
        for (int i = 0; i < D; i++) {
            float g = dy[t * D + i] * w[i];
            a += g; c += g * normed[t * D + i];
            dw[i] += dy[t * D + i] * normed[t * D + i]; db[i] += dy[t * D + i];
        }
        for (int i = 0; i < D; i++) dx[t * D + i] += r[t] * (dy[t * D + i] * w[i] - a / D - normed[t * D + i] * c / D);
    }
}

/* P(N(0, 1) <= x): Abramowitz and Stegun 7.1.26, exact to 1.5e-7. */
static inline float cumulative(float x) {
    float z = fabsf(x) * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z);
    float tail = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t * expf(-z * z);
    return x >= 0 ? 1.0f - 0.5f * tail : 0.5f * tail;
}

static void affine(const float *normed, const float *w, const float *b, float *y) {
    for (int t = 0; t < T; t++) for (int i = 0; i < D; i++) y[t * D + i] = normed[t * D + i] * w[i] + b[i];
}

static void attention(Cache *restrict c) {
    static float kt[HD][T], vt[HD][T];
    for (int h = 0; h < H; h++) {
        int q = h * HD, k = D + h * HD, v = 2 * D + h * HD;
        for (int j = 0; j < HD; j++) for (int s = 0; s < T; s++) { kt[j][s] = c->qkv[s][k + j]; vt[j][s] = c->qkv[s][v + j]; }
        for (int t = 0; t < T; t++) {
            float *restrict p = c->p[h][t];
            memset(p, 0, sizeof(float) * T);
            for (int j = 0; j < HD; j++) { float x = c->qkv[t][q + j] * SCALE; for (int s = 0; s <= t; s++) p[s] += x * kt[j][s]; }
            float most = p[0], sum = 0;
            for (int s = 1; s <= t; s++) most = p[s] > most ? p[s] : most;
            for (int s = 0; s <= t; s++) { p[s] = expf(p[s] - most); sum += p[s]; }
            for (int s = 0; s <= t; s++) p[s] /= sum;
            for (int j = 0; j < HD; j++) { float o = 0; for (int s = 0; s <= t; s++) o += p[s] * vt[j][s]; c->att[t][q + j] = o; }
        }
    }
}

static void attention_back(const Cache *restrict c, float (*restrict datt)[D], float (*restrict dqkv)[3 * D]) {
    static float kt[HD][T], vt[HD][T], dkt[HD][T], dvt[HD][T];
    for (int h = 0; h < H; h++) {
        int q = h * HD, k = D + h * HD, v = 2 * D + h * HD;
        for (int j = 0; j < HD; j++) for (int s = 0; s < T; s++) { kt[j][s] = c->qkv[s][k + j]; vt[j][s] = c->qkv[s][v + j]; }
        memset(dkt, 0, sizeof dkt); memset(dvt, 0, sizeof dvt);
        for (int t = 0; t < T; t++) {
            const float *restrict p = c->p[h][t];
            float dp[T], sum = 0;
            memset(dp, 0, sizeof dp);
            for (int j = 0; j < HD; j++) { float g = datt[t][q + j]; for (int s = 0; s <= t; s++) dp[s] += g * vt[j][s]; }
            for (int s = 0; s <= t; s++) sum += p[s] * dp[s];
            for (int s = 0; s <= t; s++) dp[s] = p[s] * (dp[s] - sum) * SCALE;
            for (int j = 0; j < HD; j++) {
                float g = datt[t][q + j], x = c->qkv[t][q + j], dq = 0;
                for (int s = 0; s <= t; s++) { dvt[j][s] += p[s] * g; dkt[j][s] += dp[s] * x; dq += dp[s] * kt[j][s]; }
                dqkv[t][q + j] = dq;
            }
        }
        for (int j = 0; j < HD; j++) for (int s = 0; s < T; s++) { dqkv[s][k + j] = dkt[j][s]; dqkv[s][v + j] = dvt[j][s]; }
    }
}

/* sequences (n, T + 1). Returns the mean loss; grad, where it is not NULL, is set to its gradient. */
double loss_and_gradient(const float *weights, const long long *sequences, int n, float *grad, int n_parameters) {
    static Cache cache[L];
    static float last[T][D], normed[T][D], out[T][D], logits[T][V], r[T], buffer[T][D], buffer2[T][D], wide[T][F], dqkv[T][3 * D], dx[T][D];
    const float *token = weights, *position = token + V * D, *blocks = position + T * D, *fw = blocks + L * BLOCK, *fb = fw + D;
    float *dtoken = grad, *dposition = 0, *dblocks = 0, *dfw = 0, *dfb = 0;
    double total = 0;
    if (grad) {
        memset(grad, 0, sizeof(float) * n_parameters);
        dposition = dtoken + V * D; dblocks = dposition + T * D; dfw = dblocks + L * BLOCK; dfb = dfw + D;
    }
    for (int b = 0; b < n; b++) {
        const long long *ids = sequences + (long long)b * (T + 1);
        for (int t = 0; t < T; t++) for (int i = 0; i < D; i++) last[t][i] = token[ids[t] * D + i] + position[t * D + i];
        for (int l = 0; l < L; l++) {
            Layer w = layer_of(blocks + l * BLOCK);
            Cache *c = &cache[l];
            memcpy(c->in, last, sizeof last);
            norm(&c->in[0][0], w.n1w, w.n1b, &c->n1[0][0], c->r1, &buffer[0][0]);
            linear(D, 3 * D, &buffer[0][0], w.qkvw, w.qkvb, &c->qkv[0][0]);
            attention(c);
            linear(D, D, &c->att[0][0], w.pw, w.pb, &buffer[0][0]);
            for (int t = 0; t < T; t++) for (int i = 0; i < D; i++) c->mid[t][i] = c->in[t][i] + buffer[t][i];
            norm(&c->mid[0][0], w.n2w, w.n2b, &c->n2[0][0], c->r2, &buffer[0][0]);
            linear(D, F, &buffer[0][0], w.ew, w.eb, &c->h[0][0]);
            for (int t = 0; t < T; t++) for (int i = 0; i < F; i++) c->g[t][i] = c->h[t][i] * cumulative(c->h[t][i]);
            linear(F, D, &c->g[0][0], w.fw, w.fb, &buffer[0][0]);
            for (int t = 0; t < T; t++) for (int i = 0; i < D; i++) last[t][i] = c->mid[t][i] + buffer[t][i];
        }
        norm(&last[0][0], fw, fb, &normed[0][0], r, &out[0][0]);
        linear(D, V, &out[0][0], token, 0, &logits[0][0]);
        float each = 1.0f / ((float)n * T);
        for (int t = 0; t < T; t++) {
            float *restrict p = logits[t];
            float most = p[0], sum = 0, target = p[ids[t + 1]];
            for (int v = 1; v < V; v++) most = p[v] > most ? p[v] : most;
            for (int v = 0; v < V; v++) { p[v] = expf(p[v] - most); sum += p[v]; }
            total += (double)(logf(sum) + most - target);
            for (int v = 0; v < V; v++) p[v] *= each / sum;
            p[ids[t + 1]] -= each;
        }
        if (!grad) continue;
        linear_back(D, V, &out[0][0], token, &logits[0][0], dtoken, 0, &buffer[0][0]);
        memset(dx, 0, sizeof dx);
        norm_back(&normed[0][0], r, fw, &buffer[0][0], dfw, dfb, &dx[0][0]);
        for (int l = L - 1; l >= 0; l--) {
            Layer w = layer_of(blocks + l * BLOCK);
            Layer g = layer_of(dblocks + l * BLOCK);
            Cache *c = &cache[l];
            linear_back(F, D, &c->g[0][0], w.fw, &dx[0][0], (float *)g.fw, (float *)g.fb, &wide[0][0]);
            for (int t = 0; t < T; t++) for (int i = 0; i < F; i++) {
                float x = c->h[t][i];
                wide[t][i] *= cumulative(x) + x * 0.39894228f * expf(-0.5f * x * x);
            }
            affine(&c->n2[0][0], w.n2w, w.n2b, &buffer2[0][0]);
            linear_back(D, F, &buffer2[0][0], w.ew, &wide[0][0], (float *)g.ew, (float *)g.eb, &buffer[0][0]);
            norm_back(&c->n2[0][0], c->r2, w.n2w, &buffer[0][0], (float *)g.n2w, (float *)g.n2b, &dx[0][0]);
            linear_back(D, D, &c->att[0][0], w.pw, &dx[0][0], (float *)g.pw, (float *)g.pb, &buffer[0][0]);
            attention_back(c, buffer, dqkv);
            affine(&c->n1[0][0], w.n1w, w.n1b, &buffer2[0][0]);
            linear_back(D, 3 * D, &buffer2[0][0], w.qkvw, &dqkv[0][0], (float *)g.qkvw, (float *)g.qkvb, &buffer[0][0]);
            norm_back(&c->n1[0][0], c->r1, w.n1w, &buffer[0][0], (float *)g.n1w, (float *)g.n1b, &dx[0][0]);
        }
        for (int t = 0; t < T; t++) for (int i = 0; i < D; i++) { dtoken[ids[t] * D + i] += dx[t][i]; dposition[t * D + i] += dx[t][i]; }
    }
    return total / ((double)n * T);
}
