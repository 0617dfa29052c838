"""The race between a host that launches and a GPU that executes, as matrices over (max, +).

The state is when the GPU and when the host are next free. An op of `d` seconds whose launch takes `l`: host h + l, GPU
max(g, h + l) + d. An op of n kernels is n such ones of d / n and l / n: the GPU begins when the first is launched, and
has one left when the last is. A host that waits for the GPU (to read a count): host max(h, g). Each is a 2 x 2 matrix
over (max, +); a layer is the product of its ops, a stage a power of its layer: a pass of a thousand ops is four
numbers, and exact.
Equation: with states as columns and (max, +) for (+, x), the state after ops 1 to n is M_n ... M_1 times the one
before.
Source: CUDA streams run launches in order; (max, +) algebra of event graphs (Baccelli et al. 1992).
Ignores: the limit on launches in flight (1024), launches whose cost varies; that kernels of one op differ in length.
"""

from typing import NamedTuple

NEVER = float("-inf")


class Race(NamedTuple):
    """What a sequence of ops does to (GPU free, host free): entry `gh` is how late the GPU is after the host began."""

    gg: float
    gh: float
    hg: float
    hh: float

    def then(self, after: "Race") -> "Race":
        """Return this sequence followed by another."""
        return Race(
            max(after.gg + self.gg, after.gh + self.hg),
            max(after.gg + self.gh, after.gh + self.hh),
            max(after.hg + self.gg, after.hh + self.hg),
            max(after.hg + self.gh, after.hh + self.hh),
        )

    def launch(self, seconds: float, launch_s: float, launches: float = 1.0) -> "Race":
        """Return this sequence followed by one op, of equal kernels where it has several launches."""
        slower_s, faster_s = (seconds, launch_s) if seconds > launch_s else (launch_s, seconds)
        alone_s = slower_s + faster_s / launches
        return Race(
            max(seconds + self.gg, alone_s + self.hg),
            max(seconds + self.gh, alone_s + self.hh),
            launch_s + self.hg,
            launch_s + self.hh,
        )

    def repeated(self, times: int) -> "Race":
        """Return this sequence run several times over."""
        result, power = NOTHING, self
        while times:
            if times & 1:
                result = result.then(power)
            power = power.then(power)
            times >>= 1
        return result


NOTHING = Race(0.0, NEVER, NEVER, 0.0)
SYNC = Race(0.0, NEVER, 0.0, 0.0)
"""The host waits for the GPU."""


def host_only(seconds: float) -> Race:
    """Return work of the host alone, which what follows has to wait for."""
    return Race(0.0, NEVER, NEVER, seconds)
