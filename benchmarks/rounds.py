"""How often the loops of a function run on given arguments: rounds, in the order in which they are traced.

A function's jaxpr is rebuilt with a counter in the carry of every `while`, so that data-dependent loops can be counted
on any device in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core


@dataclass
class Rounds:
    """Rounds of one loop, summed over those of the loop that it is in, and the loops inside."""

    count: Any
    loops: list[Rounds] = field(default_factory=list)


def count_rounds(function: Callable[..., Any], *arguments: Any) -> list[Rounds]:
    """The loops of `function(*arguments)`. Those inside of a `scan` are not counted."""
    leaves, tree = jax.tree.flatten(arguments)
    closed = jax.make_jaxpr(lambda *flat: function(*jax.tree.unflatten(tree, flat)))(*leaves)
    shape: list[list[Rounds]] = []

    def run(*flat: Any) -> list[Any]:
        _, loops = _evaluate(closed.jaxpr, closed.consts, flat)
        shape.append(loops)
        return _counts(loops)

    counts = map(int, jax.device_get(jax.jit(run)(*leaves)))
    return _filled(shape[0], counts)


def _evaluate(jaxpr: Any, consts: Any, arguments: Any) -> tuple[list[Any], list[Rounds]]:
    """The results of a jaxpr and its loops, their counts traced."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    loops: list[Rounds] = []
    for equation in jaxpr.eqns:
        inputs = [atom.val if isinstance(atom, core.Literal) else values[atom] for atom in equation.invars]
        outputs, found = _equation(equation, inputs)
        loops += found
        values.update(zip(equation.outvars, outputs, strict=True))
    return [atom.val if isinstance(atom, core.Literal) else values[atom] for atom in jaxpr.outvars], loops


def _equation(equation: Any, inputs: list[Any]) -> tuple[list[Any], list[Rounds]]:
    parameters = equation.params
    match equation.primitive.name:
        case "while":
            return _while(parameters, inputs)
        case "scan":
            outputs = equation.primitive.bind(*inputs, **parameters)
            return outputs, [Rounds(jnp.int32(parameters["length"]))] if _is_loop(parameters) else []
        case "cond":
            branches = _branches(parameters)
            if len(branches) == 1:
                return _evaluate(branches[0].jaxpr, branches[0].consts, inputs[1:])
            return _cond(branches, inputs)
    if inner := _called(parameters):
        return _evaluate(inner.jaxpr, inner.consts, inputs)
    outputs = equation.primitive.bind(*inputs, **parameters)
    return (outputs if equation.primitive.multiple_results else [outputs]), []


def _while(parameters: dict[str, Any], inputs: list[Any]) -> tuple[list[Any], list[Rounds]]:
    condition, body = parameters["cond_jaxpr"], parameters["body_jaxpr"]
    first, second = parameters["cond_nconsts"], parameters["cond_nconsts"] + parameters["body_nconsts"]
    asks, knows, start = inputs[:first], inputs[first:second], inputs[second:]
    shape: list[list[Rounds]] = []

    def step(carry: Any) -> Any:
        values, count, inside = carry
        values, loops = _evaluate(body.jaxpr, body.consts, [*knows, *values])
        shape.append(loops)
        return values, count + 1, [total + more for total, more in zip(inside, _counts(loops), strict=True)]

    inside = [jnp.int32(0)] * _number_of_loops(body.jaxpr)
    values, count, inside = lax.while_loop(
        lambda carry: _evaluate(condition.jaxpr, condition.consts, [*asks, *carry[0]])[0][0],
        step,
        (start, jnp.int32(0), inside),
    )
    return values, [Rounds(count, _filled(shape[-1], iter(inside)))]


def _cond(branches: Any, inputs: list[Any]) -> tuple[list[Any], list[Rounds]]:
    """Loops in branches are counted as loops of the branch that runs; the others have none."""
    index, *operands = inputs
    shapes: dict[int, list[Rounds]] = {}
    total = sum(_number_of_loops(branch.jaxpr) for branch in branches)

    def taken(number: int) -> Callable[..., Any]:
        def run(*operands: Any) -> Any:
            outputs, loops = _evaluate(branches[number].jaxpr, branches[number].consts, operands)
            shapes[number] = loops
            before = sum(_number_of_loops(branch.jaxpr) for branch in branches[:number])
            counts = [jnp.int32(0)] * before + _counts(loops)
            return outputs, counts + [jnp.int32(0)] * (total - len(counts))

        return run

    outputs, counts = lax.switch(index, [taken(number) for number in range(len(branches))], *operands)
    rest = iter(counts)
    return outputs, [loop for number in range(len(branches)) for loop in _filled(shapes[number], rest)]


def _branches(parameters: dict[str, Any]) -> Any:
    """The branches of a conditional; of one that depends on the platform that which is not for a certain one."""
    platforms, branches = parameters.get("branches_platforms"), parameters["branches"]
    return branches if platforms is None else [branches[platforms.index(None)]]


def _is_loop(parameters: dict[str, Any]) -> bool:
    """Whether a scan is one when it is compiled: not where it is unrolled as a whole."""
    return parameters["unroll"] < parameters["length"]


def _counts(loops: list[Rounds]) -> list[Any]:
    """The counts of loops and of those inside them, flat."""
    return [count for loop in loops for count in (loop.count, *_counts(loop.loops))]


def _filled(loops: list[Rounds], counts: Any) -> list[Rounds]:
    """The same loops with these counts."""
    return [Rounds(next(counts), _filled(loop.loops, counts)) for loop in loops]


def _number_of_loops(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        match equation.primitive.name:
            case "scan":
                total += _is_loop(equation.params)
            case "while":
                total += 1 + _number_of_loops(equation.params["body_jaxpr"].jaxpr)
            case "cond":
                total += sum(_number_of_loops(branch.jaxpr) for branch in _branches(equation.params))
            case _ if inner := _called(equation.params):
                total += _number_of_loops(inner.jaxpr)
    return total


def _called(parameters: dict[str, Any]) -> Any:
    """The closed jaxpr that an equation calls (jit, custom_vmap, …), None where it calls none."""
    found = (parameters.get(key) for key in ("jaxpr", "call_jaxpr", "call"))
    return next((inner for inner in found if hasattr(inner, "jaxpr")), None)
