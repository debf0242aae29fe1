"""Say how much slower one host is than its GPUs are sold: the links between them, and the power that they may draw.

Both are steps, so that the hosts of a market have few different speeds. A measured link reaches about half of what the
maker states, so half of it is as sold. Below that, the estimate exchanges more slowly in proportion.

A power limit below the maker's lowers the clock, and with it the rate of multiplications: by the limit's share to the
power of 0.4. Published: 95 % of the speed at 80 % of the power on RTX 3090 (pugetsystems.com, "Quad RTX3090 GPU Wattage
Limited MaxQ", an exponent of 0.23), and 85 to 90 % of a training step at 600 of 700 W on H100 (factryze.ai, "Power
Capping", 0.7 to 1.05). Reading memory does not suffer: generating text draws 137 to 300 of H200's 700 W, and no limit
slows it (A. Afzal, on energy of decoding under power caps, catalyzex.com/author/Ayesha%20Afzal).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

#: Measured links reach about this share of what the maker states.
USUAL_LINK = 0.5
POWER_EXPONENT = 0.4
#: Shares of the usual link, each half of the one before; a share below an edge belongs to a later step.
LINK_EDGES = tuple(2 ** -(step + 0.5) for step in range(5))
#: Shares of the maker's power, each 0.15 below the one before.
POWER_STEP = 0.15
POWER_EDGES = (0.925, 0.775, 0.625)

#: Watts that one GPU may draw by its maker's sheet; the least of its variants, and none where they differ much.
WATTS: Mapping[str, float] = {
    **dict.fromkeys(("H200", "H100-SXM", "H800-SXM"), 700),
    "B200": 1000,
    "H200-NVL": 600,
    "H100-NVL": 400,
    "H100-PCIE": 350,
    "H800-PCIE": 350,
    **dict.fromkeys(("A100-SXM-80GB", "A100-SXM-40GB", "A800-SXM"), 400),
    "A100-PCIE-80GB": 300,
    "A800-PCIE": 300,
    "A100X": 300,
    "A100-PCIE-40GB": 250,
    "A40": 300,
    "A30": 165,
    "A10": 150,
    "A2": 60,
    "L40S": 350,
    "L40": 300,
    "L4": 72,
    "T4": 70,
    **dict.fromkeys(("V100-32GB", "V100-16GB", "P100", "P40"), 250),
    "RTX5090": 575,
    "RTX5080": 360,
    "RTX5070Ti": 300,
    "RTX5060Ti": 180,
    "RTX4090": 450,
    "RTX4090D": 425,
    "RTX4080S": 320,
    "RTX4080": 320,
    "RTX4070TiS": 285,
    "RTX4070Ti": 285,
    "RTX4060Ti": 160,
    "RTX3090Ti": 450,
    "RTX3090": 350,
    "RTX3080Ti": 350,
    "RTX3080": 320,
    "RTX3070": 220,
    "RTX3060": 170,
    "RTX2080Ti": 250,
    "A6000": 300,
    "A5000": 230,
    "A4500": 200,
    "A4000": 140,
    "A2000": 70,
    "RTX6000Ada": 300,
    "RTX5880Ada": 285,
    "RTX5000Ada": 250,
    "RTX4500Ada": 210,
    "RTX4000Ada": 70,
    "RTX2000Ada": 70,
    "RTXPRO6000-S": 400,
    "RTXPRO6000-WS": 600,
    "RTXPRO6000-MaxQ": 300,
    "RTXPRO5000": 300,
    "RTXPRO4500": 200,
    "RTXPRO4000": 140,
    "QuadroRTX8000": 260,
    "QuadroRTX6000": 260,
    "QuadroRTX5000": 230,
    "TitanRTX": 280,
    "MI300X": 750,
    "MI325X": 1000,
    "MI250X": 500,
    "PROW7900": 295,
    "RX7900XTX": 355,
}


@dataclass(frozen=True, slots=True)
class HostSpeed:
    """Hold by how many steps the links and the power of a host are below what is sold; 0 is as sold."""

    link: int = 0
    power: int = 0

    @property
    def link_share(self) -> float:
        """Return the share of the usual link that its GPUs exchange at."""
        return math.pow(2.0, -self.link)

    @property
    def multiplying_share(self) -> float:
        """Return the share of the attainable rate of multiplications that its power leaves."""
        return math.pow(1 - POWER_STEP * self.power, POWER_EXPONENT)


AS_SOLD = HostSpeed()


def link_step(share: float) -> int:
    """Return the step of a measured link, as a share of the maker's."""
    return sum(share / USUAL_LINK < edge for edge in LINK_EDGES)


def power_step(share: float) -> int:
    """Return the step of a power limit, as a share of the maker's."""
    return sum(share < edge for edge in POWER_EDGES)
