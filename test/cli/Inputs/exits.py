"""Runs a command and succeeds when it exits with the given code: `exits.py CODE COMMAND...`."""

from __future__ import annotations

import subprocess
import sys

done = subprocess.run(sys.argv[2:], capture_output=True, text=True, check=False)
sys.stdout.write(done.stderr)
if done.returncode != int(sys.argv[1]):
    raise SystemExit(f"exit code {done.returncode}, not {sys.argv[1]}: {done.stdout}")
if done.stdout and int(sys.argv[1]):
    raise SystemExit(f"a failed command wrote to stdout: {done.stdout}")
if "Traceback" in done.stderr:
    raise SystemExit("a traceback")
