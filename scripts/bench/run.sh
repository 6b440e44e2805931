#!/usr/bin/env bash
# Builds extfused and the floor, finds the source tree's tar, and runs the
# side-by-side benchmark. Arguments go to scripts/bench (see -h).
#
# BENCH_TAR   an uncompressed tar to untar; default: the one of Debian's
#             linux-source-6.1, unpacked once below BENCH_DIR
# BENCH_DIR   working directory, default $TMPDIR/extfused-bench-data
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${BENCH_DIR:-${TMPDIR:-/tmp}/extfused-bench-data}
mkdir -p bin "$data"
CGO_ENABLED=0 go build -o bin/extfused ./cmd/extfused
CGO_ENABLED=0 go build -o bin/floor ./scripts/bench/floor
CGO_ENABLED=0 go build -o bin/bench ./scripts/bench

tar=${BENCH_TAR:-$data/linux.tar}
src=/usr/src/linux-source-6.1.tar.xz
if [ ! -e "$tar" ] && [ ! -e "$src" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	apt-get install -y -qq linux-source-6.1 >/dev/null || true
fi
if [ ! -e "$tar" ] && [ -e "$src" ]; then
	xz -dc "$src" >"$tar.part" && mv "$tar.part" "$tar"
fi
[ -e "$tar" ] || { echo "no source tree's tar: untar is skipped (set BENCH_TAR, or install linux-source-6.1)"; tar=; }
exec bin/bench -dir "$data/run" -bin bin/extfused -floor bin/floor -tar "$tar" "$@"
