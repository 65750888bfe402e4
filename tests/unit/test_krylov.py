"""The Lanczos basis against a matrix whose spectrum is known."""

import numpy as np
import pytest

from toposcale.landscape.krylov import KrylovBasis

SIZE = 30


@pytest.fixture
def matrix():
    rows = np.random.default_rng(1).standard_normal((SIZE, SIZE))
    return rows + rows.T


def grown(matrix, vectors, most=SIZE):
    basis = KrylovBasis(np.random.default_rng(0), most, len(matrix))
    for _ in range(vectors):
        basis.grow(matrix.__matmul__)
    return basis


def check_projection(basis, matrix):
    """The vectors are orthonormal, and the matrix in them is what was projected."""
    vectors = basis.vectors[: basis.count]
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(basis.count), atol=1e-12)
    projected = basis.projected[: basis.count, : basis.count]
    np.testing.assert_allclose(projected, vectors @ matrix @ vectors.T, atol=1e-11)


def test_krylov_basis_whole_basis_has_the_spectrum_of_the_matrix(matrix):
    basis = grown(matrix, SIZE)
    check_projection(basis, matrix)
    np.testing.assert_allclose(basis.ritz_pairs()[0], np.linalg.eigvalsh(matrix), atol=1e-11)


def test_krylov_basis_residuals_are_those_of_the_ritz_vectors(matrix):
    basis = grown(matrix, 9)
    values, coordinates, residuals = basis.ritz_pairs()
    vectors = coordinates.T @ basis.vectors[: basis.count]
    expected = np.linalg.norm(vectors @ matrix - values[:, None] * vectors, axis=1)
    np.testing.assert_allclose(residuals, expected, atol=1e-11)


def test_krylov_basis_restart_keeps_the_ritz_pairs_and_grows_on(matrix):
    basis = grown(matrix, 12, most=12)
    kept = np.array([0, 1, 10, 11])
    values = basis.ritz_pairs()[0][kept]
    basis.restart(kept)
    np.testing.assert_array_equal(np.diag(basis.projected)[:4], values)
    for _ in range(8):
        basis.grow(matrix.__matmul__)
    check_projection(basis, matrix)
    assert basis.ritz_pairs()[0][-1] >= values[-1]


def test_krylov_basis_space_ends_goes_on_with_vector_at_random():
    matrix = np.diag([2.0] * 3 + [5.0] * 2)  # two values: the space of any vector has two dimensions
    basis = grown(matrix, 2)
    assert basis.residual_norm == 0.0
    for _ in range(3):
        basis.grow(matrix.__matmul__)
    check_projection(basis, matrix)
    np.testing.assert_allclose(basis.ritz_pairs()[0], [2, 2, 2, 5, 5], atol=1e-12)
