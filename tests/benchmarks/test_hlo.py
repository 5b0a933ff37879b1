"""Launches, loops, bytes and look-ups of a module's text."""

from __future__ import annotations

from benchmarks import hlo

MODULE = """\
HloModule jit_f, is_scheduled=true

%fused_take (param_0: u8[64], param_1: s32[1000]) -> u8[1000] {
  %param_0 = u8[64]{0} parameter(0)
  %param_1 = s32[1000]{0} parameter(1)
  %bitcast.1 = s32[1000,1]{1,0} bitcast(%param_1)
  ROOT %gather.1 = u8[1000]{0} gather(%param_0, %bitcast.1), offset_dims={}, slice_sizes={1}
}

%fused_far (param_0: s32[1000000,2], param_1: s32[1000]) -> s32[1000,2] {
  %param_0 = s32[1000000,2]{1,0} parameter(0)
  %param_1 = s32[1000]{0} parameter(1)
  ROOT %gather.2 = s32[1000,2]{1,0} gather(%param_0, %param_1), offset_dims={1}, slice_sizes={1,2}
}

%fused_update (param_0: s32[1000], param_1: s32[10], param_2: s32[]) -> s32[1000] {
  %param_0 = s32[1000]{0} parameter(0)
  %param_1 = s32[10]{0} parameter(1)
  %param_2 = s32[] parameter(2)
  ROOT %dynamic-update-slice.1 = s32[1000]{0} dynamic-update-slice(%param_0, %param_1, %param_2)
}

%body (carry: (s32[], s32[1000])) -> (s32[], s32[1000]) {
  %carry = (s32[], s32[1000]{0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %x = s32[1000]{0} get-tuple-element(%carry), index=1
  %slice.1 = s32[10]{0} slice(%x), slice={[0:10]}
  %fusion.2 = s32[1000]{0} fusion(%x, %slice.1, %i), kind=kLoop, calls=%fused_update
  ROOT %tuple.1 = (s32[], /*index=1*/s32[1000]{0}) tuple(%i, %fusion.2)
}

%condition (carry: (s32[], s32[1000])) -> pred[] {
  %carry.1 = (s32[], s32[1000]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%carry.1), index=0
  ROOT %compare.1 = pred[] compare(%i.1, %i.1), direction=LT
}

ENTRY %main (table: u8[64], far: s32[1000000,2], index: s32[1000]) -> s32[1000] {
  %table = u8[64]{0} parameter(0)
  %far = s32[1000000,2]{1,0} parameter(1)
  %index = s32[1000]{0} parameter(2)
  %fusion = u8[1000]{0} fusion(%table, %index), kind=kLoop, calls=%fused_take
  %fusion.1 = s32[1000,2]{1,0} fusion(%far, %index), kind=kLoop, calls=%fused_far
  %zero = s32[] constant(0)
  %tuple = (s32[], s32[1000]{0}) tuple(%zero, %index)
  %while.1 = (s32[], s32[1000]{0}) while(%tuple), condition=%condition, body=%body, \
metadata={op_name="jit(f)/rounds/while"}, backend_config={"known_trip_count":{"n":"7"}}
  ROOT %out = s32[1000]{0} get-tuple-element(%while.1), index=1
}
"""


def test_kernels_outside_of_loops():
    assert dict(hlo.read(MODULE).straight.kernels) == {"fusion": 2}


def test_look_ups_in_small_tables_are_no_traffic():
    straight = hlo.read(MODULE).straight
    assert straight.lookups == 1000
    index, taken, sectors, rows = 4000, 1000, 32 * 1000, 8000
    assert straight.traffic == (index + taken) + (index + sectors + rows)


def test_a_loop_and_its_round():
    (loop,) = hlo.read(MODULE).loops
    assert (loop.name, loop.trips, loop.loops) == ("rounds/while", 7, [])
    assert dict(loop.round.kernels) == {"slice": 1, "fusion": 1, "compare": 1}


def test_an_update_in_place_costs_what_it_changes():
    (loop,) = hlo.read(MODULE).loops
    update, index, ten = 40, 4, 40
    assert loop.round.traffic == (ten + ten) + (ten + index + update) + (index + 1)
