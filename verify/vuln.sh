#!/usr/bin/env bash
# Looks for known vulnerabilities in the code that the modules here call: fails on one of a
# module that we require, and only names those of the Go that happens to be installed. The
# database comes as a Go module, so this works without the network once that is there.
# Usage: verify/vuln.sh FOLDER..., each with a go.mod
set -euo pipefail
[ $# -gt 0 ] || { echo 'vuln: which folders?'; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
database=golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -C "$root/verify" -o "$bin/" golang.org/x/vuln/cmd/govulncheck
download=$(go mod download -json "$database") || { echo "vuln: cannot get the database: $download"; exit 1; }
dir=$(sed -n 's/.*"Dir": "\(.*\)",/\1/p' <<<"$download")
osv="$dir/data/osv"
[ -n "$(ls "$osv")" ] || { echo "vuln: the database is empty"; exit 1; }

failed=0
for folder in "$@"; do
	status=0
	found=$(cd "$root/$folder" && "$bin/govulncheck" -db "file://$osv" ./... 2>&1) || status=$?
	case $status in
	0) echo "$folder: none" ;;
	3)
		ids=$(sed -n 's/^Vulnerability #[0-9]*: //p' <<<"$found" | paste -sd ' ')
		if grep -q '^  Module: ' <<<"$found"; then
			failed=1
			printf '%s\n' "$found" | grep -v '^      #'
		else
			echo "$folder: only in the standard library of $(go env GOVERSION): $ids"
		fi
		;;
	*)
		printf '%s\n' "$found"
		exit 1
		;;
	esac
done
exit $failed
