#!/usr/bin/env bash
# gofmt, go vet, staticcheck, checklocks, the shape of the code, and the import
# rules.
set -uo pipefail
cd "$(dirname "$0")/.."
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
checklocks=gvisor.dev/gvisor/tools/checklocks/cmd/checklocks@v0.0.0-20260905035102-160fafc42237
bad=0

files=$(gofmt -l $(git ls-files '*.go'))
[ -z "$files" ] || { echo "not formatted (gofmt -w): $files"; bad=1; }

go vet ./... || bad=1
go vet -tags invariants ./... || bad=1

if go run "$staticcheck" -version >/dev/null 2>&1; then
	go run "$staticcheck" ./... || bad=1
else
	echo "staticcheck is skipped: $staticcheck could not be fetched and built"
fi

# Where locks are not handed over, nor tried, as they are in journal, mballoc,
# bcache and fs/ext4.
tools=$(mktemp -d)
if GOBIN=$tools go install "$checklocks" 2>/dev/null; then
	go vet -vettool="$tools/checklocks" ./blockdev ./fs/htree ./fs/xattr ./fs/extent ./fs/fusefs/... ./metrics ./cmd/extfused/control ./cmd/extfused/daemon || bad=1
else
	echo "checklocks is skipped: $checklocks could not be fetched and built"
fi
rm -rf "$tools"

if command -v shellcheck >/dev/null; then
	# shellcheck disable=SC2046
	shellcheck $(git ls-files '*.sh') .ci/run || bad=1
else
	echo "shellcheck is skipped: it is not installed"
fi

# Files of the product stay under 800 lines.
for f in $(git ls-files '*.go' | grep -v _test.go); do
	n=$(wc -l <"$f")
	[ "$n" -le 800 ] || { echo "$f has $n lines, 800 are enough"; bad=1; }
done

go test -count=1 -run '^TestLayering' ./cmd/extfused || bad=1
exit $bad
