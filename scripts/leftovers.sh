#!/usr/bin/env bash
# Lists what sandboxes are made of: processes, namespaces, links, firewall
# tables, mounts, cgroups and directories. Tests compare it before and after.
set -uo pipefail
shopt -s nullglob

for f in /proc/[0-9]*/cmdline; do
  cmd=$({ tr '\0' ' ' <"$f"; } 2>/dev/null) || continue
  case "$cmd" in
    runsc-sandbox*|*/.pandastack/guest*|*bin/pandastack\ server*|*postgres\ -D\ *pandastack*) echo "process ${f//[!0-9]/} $cmd" | cut -c1-160 ;;
  esac
done
for ns in /run/netns/ps-*; do echo "namespace $ns"; done
for l in /sys/class/net/ps-*; do echo "link $l"; done
grep -E 'pandastack|/run/netns/ps-|erofs' /proc/self/mounts | awk '{print "mount", $2}'
for c in /sys/fs/cgroup/pandastac[k] /sys/fs/cgroup/*/pandastack; do echo "cgroup $c"; done
for d in /tmp/pandastack*; do echo "file $d"; done
if command -v nft >/dev/null; then nft list tables 2>/dev/null | grep pandastack | sed 's/^/firewall /'; fi
exit 0
