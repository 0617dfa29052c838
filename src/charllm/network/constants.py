"""Placeholder until the room's own constants land."""
from charllm.cost.calibration import CALIBRATION, Calibration

NetworkConstants = Calibration
NETWORK = CALIBRATION
