# Sourced by scripts that run checks and go on after a failure.
#
#   set_budget MINUTES               how long the script may take, from now on; no call: no limit
#   check NAME COMMAND...            runs the command; records how it ended and what it cost
#   optional SECONDS NAME COMMAND... the same, unless the budget does not allow it. SECONDS is what
#                                    the check takes on two idle cores from an empty compiler cache
#   finish [FILE]                    prints the summary and exits, with 1 if a check has failed; writes
#                                    the times to FILE, as a table in Markdown
#
# A slow machine must not make a budget a failure: an optional check is skipped if its SECONDS, scaled
# by how slow the machine is just now, exceed what is left, and stopped when the budget ends while it
# runs. The summary names it as skipped in either case, and so when its status is 77: the machine lacks
# what it needs. A check that ends by itself and fails has failed, and so has one that is not optional
# and still runs ten minutes after the budget's end.

results=() table=() failed=0 budget_end=
say() { printf '\n== %s\n' "$*"; }

set_budget() { budget_end=$((SECONDS + $1 * 60)); }

# User and system seconds of all commands that have ended.
cpu_seconds() {
  local stat
  read -ra stat <"/proc/$$/stat"
  echo $(((stat[15] + stat[16]) / $(getconf CLK_TCK)))
}

# How many tenths of the time on an idle reference core this machine takes to compile a small file.
readonly PROBE_MILLISECONDS=600
slowness() {
  local start end
  start=$(date +%s%N)
  printf '#include <map>\n#include <string>\n#include <vector>\nstd::map<std::string, std::vector<int>> m;
int f(int i) { return m["x"][i]; }\n' | g++ -std=c++20 -O2 -x c++ -c -o /dev/null - 2>/dev/null
  end=$(date +%s%N)
  echo $(((end - start) / 100000 / PROBE_MILLISECONDS))
}

# bounded SECONDS COMMAND...: runs a command or function in a process group of its own, and stops the
# whole group after that time, or when this shell is stopped itself.
bounded() {
  local seconds="$1" group watchdog status
  shift
  set -m
  "$@" </dev/null &
  group=$!
  (sleep "$seconds"; kill -TERM -- "-$group"; sleep 20; kill -KILL -- "-$group") \
    </dev/null >/dev/null 2>&1 &
  watchdog=$!
  set +m
  trap 'kill -TERM -- "-$group" "-$watchdog" 2>/dev/null; wait; exit 143' TERM INT
  wait "$group"
  status=$?
  trap - TERM INT
  kill -TERM -- "-$watchdog" 2>/dev/null
  wait "$watchdog" 2>/dev/null
  return $status
}

# record RESULT NAME WALL_SECONDS CPU_SECONDS [REMARK]
record() {
  results+=("$(printf '%-8s%s (%d s, CPU %d s%s)' "$1" "$2" "$3" "$4" "${5:+, $5}")")
  table+=("| $2 | $3 | $4 | $1${5:+ ($5)} |")
}

# run_check LIMIT RESULT NAME COMMAND...: LIMIT in seconds, empty for none; RESULT of a check that takes
# longer.
run_check() {
  local limit="$1" overdue="$2" name="$3" start=$SECONDS cpu status
  shift 3
  cpu=$(cpu_seconds)
  say "$name"
  bounded "${limit:-1000000}" "$@"
  status=$?
  local wall=$((SECONDS - start))
  cpu=$(($(cpu_seconds) - cpu))
  if [ $status -eq 0 ]; then
    record ok "$name" $wall $cpu
  elif [ $status -eq 77 ]; then
    record skipped "$name" $wall $cpu "what it needs is not there"
  elif [ -n "$limit" ] && [ $wall -ge "$limit" ]; then
    echo "stopped: the budget is used up"
    record "$overdue" "$name" $wall $cpu "budget: stopped"
    [ "$overdue" = skipped ] || failed=1
  else
    record FAILED "$name" $wall $cpu "status $status"
    failed=1
  fi
  return $status
}

check() { run_check "${budget_end:+$((budget_end - SECONDS + 600))}" FAILED "$@"; }

optional() {
  local typical="$1" left
  shift
  [ -n "$budget_end" ] || { run_check "" FAILED "$@"; return; }
  left=$((budget_end - SECONDS))
  if [ $left -le 0 ] || [ $((typical * $(slowness) / 10)) -gt $left ]; then
    say "$1: skipped, $((left > 0 ? left : 0)) s of the budget are left"
    record skipped "$1" 0 0 "budget"
    return 1
  fi
  run_check "$left" skipped "$@"
}

finish() {
  say "summary"
  printf '%s\n' "${results[@]}"
  if [ -n "${1:-}" ]; then
    {
      echo "| check | wall s | CPU s | result |"
      echo "|---|---:|---:|---|"
      printf '%s\n' "${table[@]}"
      echo "| **all** | $SECONDS | $(cpu_seconds) | |"
    } >"$1"
  fi
  exit $failed
}
