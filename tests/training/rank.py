"""`nagphormer train` as one of several ranks, which can be told where to die: `rank.py LOG DEATHS ARGUMENT …`.

DEATHS is JSON: for a rank's number, what `killable.act` takes. After a restart nobody dies.
"""

import json
import os
import sys

import killable

log, deaths, *arguments = sys.argv[1:]
rank = os.environ["RANK"]
first_try = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
killable.act(arguments, f"{log}-{rank}", json.loads(deaths).get(rank, {"share": float("inf")}) if first_try else {})
