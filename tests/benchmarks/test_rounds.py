"""Loops counted against loops of known length."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchmarks.rounds import Rounds, count_rounds


def count_to(stop):
    return lax.while_loop(lambda at: at < stop, lambda at: at + 1, jnp.int32(0))


def counted(function, *arguments):
    def plain(loops: list[Rounds]):
        return [(int(loop.count), plain(loop.loops)) for loop in loops]

    return plain(count_rounds(function, *arguments))


def test_one_after_another():
    assert counted(lambda n: count_to(n) + count_to(n + 2), jnp.int32(5)) == [(5, []), (7, [])]


def test_inside_of_another_the_rounds_add_up():
    def triangle(n):
        return lax.fori_loop(0, n, lambda i, total: total + count_to(i), jnp.int32(0))

    assert counted(triangle, jnp.int32(5)) == [(5, [(10, [])])]


def test_through_calls():
    twice = jax.jit(lambda n: count_to(n) * 2)
    assert counted(lambda n: twice(n) + 1, jnp.int32(3)) == [(3, [])]


def test_a_fixed_number_of_rounds():
    assert counted(lambda x: lax.scan(lambda c, _: (c + x, None), x, length=4)[0], jnp.int32(1)) == [(4, [])]


def test_what_is_unrolled_is_no_loop():
    def scan(x, unroll):
        return lax.scan(lambda c, _: (c + x, None), x, length=4, unroll=unroll)[0]

    assert counted(lambda x: scan(scan(x, True), 1), jnp.int32(1)) == [(4, [])]


def test_the_branch_of_no_certain_platform():
    def anywhere(n):
        return lax.platform_dependent(n, tpu=lambda n: count_to(n), default=lambda n: count_to(n + 1))

    assert counted(anywhere, jnp.int32(2)) == [(3, [])]
    assert counted(lambda n: lax.fori_loop(0, n, lambda _, x: anywhere(x), n), jnp.int32(2)) == [(2, [(7, [])])]


@pytest.mark.parametrize(("n", "want"), [(9, [(9, []), (0, [])]), (2, [(0, []), (1, [])])])
def test_the_branch_that_runs(n, want):
    def either(n):
        return lax.cond(n < 5, lambda: count_to(jnp.int32(1)), lambda: count_to(n))

    assert counted(either, jnp.int32(n)) == want


def test_pytrees_as_arguments():
    assert counted(lambda tree: count_to(tree["n"]), {"n": jnp.int32(2), "unused": jnp.zeros(3)}) == [(2, [])]
