"""Run a PySpark program as it is, under Penstock's control.

    penstock submit [OPTIONS] APP.py [ARGUMENTS]
    spark-submit [SPARK'S OPTIONS] penstock_submit.py [OPTIONS] APP.py [ARGUMENTS]

The program is not changed and nothing of PySpark is patched: a thread of its own looks for the session when it is
there. Exit code, signals, output and errors are the program's. Only this file is needed for that: whatever is wrong
with the rest of Penstock, the program runs, and standard error has one line that says why it is not controlled. That
is why the command `penstock` begins here as well.
"""

from __future__ import annotations

import argparse
import builtins
import importlib.util
import os
import runpy
import shlex
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

JOIN_S = 15.0
"""Longest time that the end of the program waits for Penstock to put back what it had set."""


def command() -> None:
    """The command `penstock`: `submit` needs nothing but this file, every other command the whole of Penstock."""
    if sys.argv[1:2] == ["submit"]:
        main(sys.argv[2:])
        return
    from penstock.cli import main as every_command

    every_command()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program that the arguments name; returns, or raises, as the program does."""
    options = parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    if options.script:
        print(os.path.abspath(__file__))
        return
    program = options.program
    if not program:
        parser().error("which program? penstock submit APP.py")
    app, *rest = program
    if not os.path.exists(app):
        parser().error(f"there is no {'option' if app.startswith('-') else 'program'} '{app}'")
    if os.path.isdir(app) and not os.path.exists(os.path.join(app, "__main__.py")):
        parser().error(f"'{app}' is a folder, not a program")
    for pair in options.conf:
        if not pair.partition("=")[1]:
            parser().error(f"--conf takes KEY=VALUE, not '{pair}'")
    if rest[:1] == ["--"]:
        rest = rest[1:]
    steering = _steering(options)
    _session_defaults(options)
    if steering is None:
        run_program(app, rest)
        return
    stop = threading.Event()
    watcher = threading.Thread(target=_guarded, args=(steering, stop), name="penstock-submit", daemon=True)
    watcher.start()
    try:
        run_program(app, rest)
    finally:
        stop.set()
        watcher.join(JOIN_S)


class Parser(argparse.ArgumentParser):
    """Tells what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, f"penstock: {message}; '{self.prog} --help' has the options\n")


def parser() -> argparse.ArgumentParser:
    """The options, which stand before the program."""
    made = Parser(
        prog="penstock submit",
        usage="penstock submit [OPTIONS] APP.py [ARGUMENTS]",
        description="Run a PySpark program as it is, under control: same output, same exit code, same signals.",
        epilog="""examples:
  penstock submit --latency 2s --ui 4041 app.py --topic orders
  penstock submit --mode recommend app.py       decide and explain, change nothing
  penstock submit --goals goals.yaml app.py     latency: 5s
                                                queries: {orders: {latency: 500ms, priority: 2}}
  spark-submit --master yarn $(penstock submit --script) --latency 2s app.py

Every option but --master and --conf can also be a setting of Spark's: --latency 2s is
spark.penstock.latency=2s, --max-executors 8 is spark.penstock.maxExecutors=8. Afterwards,
'penstock explain' and 'penstock dashboard' tell what was decided and why.""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_goals(made)
    made.add_argument("--master", help="Spark master, where the program names none.")
    made.add_argument(
        "--conf", action="append", default=[], metavar="K=V", help="A setting of Spark's; may be repeated."
    )
    made.add_argument("--script", action="store_true", help="Print where this script is, for spark-submit.")
    made.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="APP.py", help="The program and its arguments."
    )
    return made


def add_goals(made: argparse.ArgumentParser) -> None:
    """The options that say what is wanted, which `penstock attach` has as well."""
    made.add_argument(
        "--latency", metavar="TIME", help="Latency that every query must keep, e.g. 2s or 500ms."
    )
    made.add_argument("--goals", metavar="FILE", help="Goals by query, as YAML.")
    made.add_argument(
        "--mode", choices=("observe", "recommend", "act"), help="What Penstock may do; default: act."
    )
    made.add_argument(
        "--max-executors", metavar="N", help="Most executors; default: as many as there have been."
    )
    made.add_argument(
        "--spare-executors",
        metavar="N",
        help="Executors kept warm beyond those needed, for a rise that nobody foresees; default: 0.",
    )
    made.add_argument(
        "--interference",
        action="store_true",
        help="Move state away from executors that are slow or crowded.",
    )
    made.add_argument("--interval", metavar="TIME", help="Time between two decisions; default: 5s.")
    made.add_argument("--journal", metavar="FILE", help="Journal file; default: .penstock/runs.sqlite.")
    made.add_argument(
        "--ui", metavar="PORT", help="Serve the page on this port, or HOST:PORT; 0: any free one."
    )


def given(options: argparse.Namespace) -> dict[str, Any]:
    """What was asked for on the command line."""
    return {name: value for name, value in vars(options).items() if value not in (None, [], False)}


def run_program(app: str, arguments: Sequence[str]) -> None:
    """What `python APP ARGUMENTS` does, in this process and thread."""
    sys.argv = [app, *arguments]
    if os.path.isdir(app) or not app.endswith(".py"):
        runpy.run_path(app, run_name="__main__")
        return
    sys.path[0] = os.path.dirname(os.path.abspath(app))
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=app, __builtins__=builtins)
    sys.modules["__main__"] = module
    with open(app, "rb") as file:
        text = file.read()
    try:
        exec(compile(text, app, "exec"), module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        # The traceback begins in the program, as it would without us; Python then ends as it does after any error.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        sys.excepthook = lambda *_: None
        raise


def say(text: str) -> None:
    """One line on standard error."""
    line = f"penstock: {text}"
    if "PYSPARK_GATEWAY_PORT" not in os.environ or not _say_in_driver(line):
        print(line, file=sys.stderr, flush=True)


def _say_in_driver(line: str) -> bool:
    """Under spark-submit our standard error is joined to standard output, which is the program's; Java's is not."""
    try:
        from pyspark import SparkContext

        SparkContext._ensure_initialized()
        SparkContext._jvm.java.lang.System.err.println(line)  # type: ignore[union-attr]
    except Exception:
        return False
    return True


def _steering(options: argparse.Namespace) -> Callable[[threading.Event], None] | None:
    """What watches and steers; None, with a warning, where Penstock cannot start."""
    try:
        from penstock.cli.submit import steering_of
        from penstock.errors import UserError
    except Exception as problem:
        say(f"cannot start, so this program runs without control: {type(problem).__name__}: {problem}")
        return None
    try:
        return steering_of(given(options), say=say, conf=_asked(options))
    except UserError as problem:
        parser().error(str(problem))
    except Exception as problem:
        say(f"cannot start, so this program runs without control: {type(problem).__name__}: {problem}")
    return None


def _guarded(steering: Callable[[threading.Event], None], stop: threading.Event) -> None:
    try:
        steering(stop)
    except Exception as problem:
        say(f"stopped controlling, the program goes on: {type(problem).__name__}: {problem}")


def _asked(options: argparse.Namespace) -> dict[str, str]:
    """What `--conf` was given."""
    return dict(pair.partition("=")[::2] for pair in options.conf)


def _session_defaults(options: argparse.Namespace) -> None:
    """Settings for the session that the program will make: those asked for, and good ones where nobody set any."""
    try:
        from penstock.spark.session import SAFE_DEFAULTS

        defaults: Mapping[str, str] = SAFE_DEFAULTS
    except Exception:
        defaults = {}
    asked = _asked(options)
    if options.master:
        asked["spark.master"] = options.master
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        _into_gateway(asked, defaults)
        return
    present = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    known = {word.partition("=")[0] for word in present} | _defaults_file()
    missing = {key: value for key, value in defaults.items() if key not in known and key not in asked}
    words = [word for key, value in {**missing, **asked}.items() for word in ("--conf", f"{key}={value}")]
    if words:
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*words, *present])
    _tell_defaults(missing)


def _into_gateway(asked: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """Under spark-submit the driver's Java is there already, with the settings it was given as system properties."""
    try:
        from pyspark import SparkContext

        SparkContext._ensure_initialized()
        system: Any = SparkContext._jvm.java.lang.System  # type: ignore[union-attr]
        missing = {k: v for k, v in defaults.items() if k not in asked and system.getProperty(k) is None}
        for key, value in {**missing, **asked}.items():
            system.setProperty(key, value)
        _tell_defaults(missing)
    except Exception as problem:
        say(f"session defaults were left alone: {type(problem).__name__}: {problem}")


def _tell_defaults(settings: Mapping[str, str]) -> None:
    if settings:
        told = ", ".join(f"{key}={value}" for key, value in settings.items())
        say(f"set where the program and its cluster set nothing: {told}")


def _defaults_file() -> set[str]:
    """Keys of spark-defaults.conf, which a --conf would overrule."""
    installed = importlib.util.find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or os.path.dirname((installed and installed.origin) or "")
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf")
    try:
        with open(os.path.join(folder, "spark-defaults.conf"), encoding="utf-8") as file:
            return {
                line.replace("=", " ").split()[0] for line in file if line.strip() and line.strip()[0] != "#"
            }
    except OSError:
        return set()


if __name__ == "__main__":
    main()
