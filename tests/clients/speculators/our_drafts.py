"""Run by the interpreter that has mlc_native: what our head guesses behind texts.

Reads {"head": FOLDER, "target": FOLDER, "texts": [[ID]]} from stdin and writes
{"streams": [LAYER], "drafts": [position][text][guess]} to stdout.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "models"))
from draft_driver import propose_at_positions

asked = json.load(sys.stdin)
streams, drafts = propose_at_positions(Path(asked["head"]), Path(asked["target"]), asked["texts"])
json.dump({"streams": streams, "drafts": drafts}, sys.stdout)
