#!/bin/sh
# A Chromium for the browser tests: the one that is there, or Debian's where we may install it.
set -eu
if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null
    exit 0
fi
echo "the browser tests need chromium: install it with your package manager" >&2
exit 1
