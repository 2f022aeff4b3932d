#!/usr/bin/env bash
# Fuzzes every target of the root package, each for SECONDS (5 if not given). It starts from
# the seeds and testdata/fuzz alone: no run depends on what an earlier one left in a cache. A
# find fails, and is written to testdata/fuzz. So does, a minute late, a target that hangs.
#
#   verify/fuzz.sh [SECONDS]
#   verify/fuzz.sh SECONDS selftest   # with a fault in each structure: every target must fail
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# fault FILE EXPRESSION edits a copy of FILE with sed, and adds it to the overlay.
overlay=
fault() {
	sed "$2" "$1" >"$tmp/$1"
	! cmp -s "$1" "$tmp/$1" || { echo "fuzz: the fault of $1 fits no more"; exit 1; }
	overlay+="${overlay:+, }\"$PWD/$1\": \"$tmp/$1\""
}
flags=()
finds=$PWD # where testdata/fuzz is
if [ "${2-}" = selftest ]; then
	fault heap.go 's/node\[I\]{at, seq, id}/node[I]{at, seq*0 + h.nodes.at(h.places[id]).seq, id}/'
	fault stacks.go 's/\*p = plate\[T\]{below: s.free}/p.below = s.free/'
	fault table.go 's/t.n > 0 && from > ref(t.n);/t.n > 0 \&\& from > ref(t.n)+1;/'
	fault order.go 's/open.push(levelID(len(levels)), int64(^priority))/open.push(levelID(len(levels)), int64(priority))/'
	fault queue.go 's/priority = max(priority, c.endWait(e))/c.endWait(e)/'
	fault fifo.go 's/!e.is(dirty) && !e.acc.forgotten/!e.is(dirty)/'
	fault deltafifo.go 's/if newest.FinalStateUnknown {/if newest.ObjectMissing {/'
	fault store.go 's/x.rebuild(&fresh); err != nil {/x.rebuild(\&fresh); err != nil \&\& i > 1 {/'
	fault catalog.go 's/if \*link <= last {/if *link < last {/'
	echo "{\"Replace\": {$overlay}}" >"$tmp/overlay.json"
	flags=(-overlay "$tmp/overlay.json")
	finds=$tmp
fi

# One build for all targets, where go test -fuzz would link anew for each.
go test -c -fuzz=. "${flags[@]}" -o "$tmp/fuzz.test" .
cd "$finds"
targets=$("$tmp/fuzz.test" -test.list '^Fuzz')
[ -n "$targets" ] || { echo 'fuzz: there is no target'; exit 1; }

found=() clean=()
for target in $targets; do
	echo "-- $target"
	# To minimize each new input would take longer than to find it.
	if timeout -k 5 $((seconds + 60)) "$tmp/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "${seconds}s" \
		-test.fuzzminimizetime 0x -test.fuzzcachedir "$tmp/corpus" -test.parallel 2 >"$tmp/out" 2>&1; then
		clean+=("$target")
	elif [ "${2-}" = selftest ] && ! grep -q -- "^--- FAIL: $target " "$tmp/out"; then
		clean+=("$target") # it failed of something else than the fault
		cat "$tmp/out"
	else
		found+=("$target")
		grep -vE 'elapsed:|\[rapid\] draw|: (empty|nobody [a-z]+)$|^FAIL$' "$tmp/out" || true
	fi
	grep ' execs: ' "$tmp/out" | tail -1 || true
done
if [ "${2-}" = selftest ]; then
	found=("${clean[@]}")
fi
[ ${#found[@]} = 0 ] || { echo "fuzz: failed: ${found[*]}"; exit 1; }
