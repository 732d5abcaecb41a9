#!/usr/bin/env bash
# Lets three minutes pass in which something happens to everything that the
# dashboards show, and has them drawn. tools/observe runs it beside the demo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${1:?folder to draw into}

ctl() { bin/headgate ctl "$@" >/dev/null; }

pass() { sleep "$(awk -v s="$1" -v pace="${PACE:-1}" 'BEGIN { print s * pace }')"; } # PACE=0.3 for a quick try

pass 10 # a rate needs what was before
began=$(date +%s)
pass 30
echo "a host of interceptors crashes again and again"
for _ in {1..12}; do
	read -ra host < <(cat "/proc/$DEMO_PID"/task/*/children) || true
	kill -KILL "${host[@]}" 2>/dev/null || true # none while it is started again
	pass 1
done
pass 20
ctl mode block-destructive audit --ttl 2h --reason "blocks the nightly clean-up"
pass 30
ctl clear block-destructive --reason "rule 7 is fixed"
for _ in 1 2 3; do
	HEADGATE_ADMIN_TOKEN_FILE='' HEADGATE_ADMIN_TOKEN=not-the-token-of-anybody-at-all ctl ls 2>/dev/null || true
	pass 3
done
ctl mode injection-scan active --reason "a day in audit shows that it is right"
pass 30
ctl break-glass audit-all --reason "nobody knows who blocks"
pass 20
ctl break-glass end --reason "it was injection-scan"
ctl mode injection-scan audit --ttl 2h --reason "blocks good traffic"
ctl mode stamp-response off --ttl 10m --reason "to see whether it is missed"
pass 30
node tools/pictures/draw.mjs --from "$began" --out "$out"
