"""The jar of the listener, compiled against the PySpark that is installed, by the compiler that Spark brings."""

from __future__ import annotations

import zipfile
from importlib.resources import files
from pathlib import Path

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from penstock.errors import InputError, UserError
from penstock.spark.cluster.java import find_java
from penstock.spark.session import spark_jars

LISTENER = "penstock.GatewayListener"
SOURCE = "GatewayListener.java"


def write_jar(path: Path) -> None:
    """Compile the listener into a jar; an `InputError` where it cannot be written."""
    classes = compiled(files(__package__).joinpath(SOURCE).read_text(encoding="utf-8"))
    try:
        with zipfile.ZipFile(path, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
            for name, code in sorted(classes.items()):
                jar.writestr(name.replace(".", "/") + ".class", code)
    except OSError as problem:
        raise InputError(f"cannot write '{path}': {problem.strerror}") from problem


def compiled(source: str) -> dict[str, bytes]:
    """Each class by its name. Needs no JDK: a Java with Spark's jars runs Janino, the compiler of generated code."""
    jars = Path(spark_jars())
    (py4j,) = jars.glob("py4j-*.jar")
    java = JavaGateway.launch_gateway(
        jarpath=str(py4j),
        classpath=f"{jars}/*",
        java_path=find_java().command,
        javaopts=["-Xmx256m", "-XX:+UseSerialGC"],
        die_on_exit=True,
        enable_auth=True,
    )
    try:
        compiler = java.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(source)
        return {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}
    except Py4JJavaError as problem:
        raise UserError(f"Janino cannot compile this: {problem.java_exception.getMessage()}") from None
    finally:
        java.shutdown()
        java.java_process.stdin.close()  # the sign for it to end
        java.java_process.wait(30)
