"""How long one cycle of the shedding controller takes, by number of tasks.

    python benchmarks/shedding_cycle.py [--tasks 500 2000 10000 100000] [--repeat 15]

The cases `busy`, `crowded` and `rising` are those of `penstock_papers.quality_of_data.crowds`. Timed is a whole
`decide`, from the snapshot to actions with reasons, in CPU time.
"""

from __future__ import annotations

import argparse
import statistics

from penstock_papers.quality_of_data.crowds import CASES, cycle_times_ms


def main() -> None:
    parser = argparse.ArgumentParser(description="Time one cycle of the shedding controller.")
    parser.add_argument("--tasks", type=int, nargs="+", default=[500, 2_000, 10_000, 100_000])
    parser.add_argument("--repeat", type=int, default=15)
    given = parser.parse_args()
    print(f"{'case':8} {'tasks':>8} {'median ms':>10} {'best ms':>8} {'µs/task':>8} {'shed':>6} {'moves':>6}")
    for case in CASES:
        for tasks in given.tasks:
            took, kinds = cycle_times_ms(tasks, case, given.repeat)
            median = statistics.median(took)
            print(
                f"{case:8} {tasks:8d} {median:10.2f} {min(took):8.2f} {1e3 * median / tasks:8.2f} "
                f"{kinds.count('shed'):6d} {kinds.count('move'):6d}"
            )


if __name__ == "__main__":
    main()
