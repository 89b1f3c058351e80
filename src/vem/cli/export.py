"""``vem export``: a policy as a file that runs without Python."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

EXAMPLES = """examples:
  vem export runs/antmaze-umaze-vem                        beside the policy: policies/seed0.onnx
  vem export runs/antmaze-umaze-vem --seed 1 --out policy.onnx
  vem export policy.safetensors --out policy.onnx          a policy file alone, checked on random rows
"""


def register(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "export",
        help="write a policy as an ONNX file",
        description="Write a policy with its encoder, normalizer and bounds as one ONNX file. It is compared with the "
        "policy on thousands of rows first, and written only if both act alike.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("source", metavar="RUN", help="a run directory, or a policy file")
    add("--format", default="onnx", metavar="NAME", help="onnx (default)")
    add("--seed", type=int, metavar="N", help="which policy, in a run of several seeds")
    add("--member", metavar="NAME", help="which policy, in a sweep: the name of its file")
    add("--out", metavar="FILE", help="the file to write (default: beside the policy's)")
    add("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Export, and say how the file compares."""
    from vem.runs.export import export

    made = export(options.source, options.out, format=options.format, seed=options.seed, member=options.member)
    if options.json:
        print(json.dumps({"file": str(made.path), **dataclasses.asdict(made.check)}))
    else:
        print(f"{made.path}: {made.check}")
