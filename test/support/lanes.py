"""The lanes, as their table says."""

import pathlib
import re

LANES = tuple(re.findall(r'\.name = "([\w-]+)"', (pathlib.Path(__file__).resolve().parents[2] / "src/port/lanes.def").read_text()))
