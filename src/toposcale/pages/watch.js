// The watch page: the explorer, whose parts come from a server that follows a training. What is new is drawn every second.

const INTERVAL_MS = 1000;

async function fetchPart(name) {
  return (await fetch("data/" + name)).json();
}

/** Wait until the training that is followed has a model to show. */
async function firstModel() {
  while (!run.models.length) {
    $("#state").textContent = run.state;
    await new Promise((done) => setTimeout(done, INTERVAL_MS));
    run = await part("run");
  }
}

/** Poll the server; draw a new version once all of its parts are loaded. */
async function follow() {
  try {
    const latest = await part("run");
    $("#state").textContent = latest.state;
    if (latest.version !== run.version) {
      const numbers = distinct(SIDES.map((side) => +$("#" + side).value));
      const models = await Promise.all(numbers.map((number) => part("model-" + number)));
      // A part may already be of a later version, whose columns differ; the next poll loads all of that version.
      if (models.every((one) => one.version === latest.version)) {
        run = latest;
        loaded = new Map(numbers.map((number, k) => [number, { ...run.models[number], ...models[k] }]));
        fillModels();
        await change();
      }
    }
  } catch {
    $("#state").textContent = "The server has stopped. The page shows the last data it sent.";
  }
  setTimeout(follow, INTERVAL_MS);
}
