#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 30s) each, or
# those whose name matches the first argument.
set -euo pipefail
cd "$(dirname "$0")/.."
pattern=${1:-.}
ran=0
for pkg in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' | grep -E "$pattern" || true); do
		echo "=== $pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" -fuzzminimizetime 10x "$pkg"
		ran=$((ran + 1))
	done
done
echo "$ran fuzz targets ran"
[ "$ran" -gt 0 ]
