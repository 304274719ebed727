# Sourced by scripts that run checks and go on after a failure.
#
#   check NAME COMMAND...   runs it; notes the result and the time it took
#   finish                  prints the summary and exits, with 1 when a check has failed

summary=() failed=0
say() { printf '\n== %s\n' "$*"; }

check() {
  local name="$1" start=$SECONDS status
  shift
  say "$name"
  "$@" </dev/null
  status=$?
  if [ $status -eq 0 ]; then
    summary+=("ok      $name ($((SECONDS - start)) s)")
  else
    summary+=("FAILED  $name ($((SECONDS - start)) s, status $status)")
    failed=1
  fi
  return $status
}

finish() {
  say "summary"
  printf '%s\n' "${summary[@]}"
  exit $failed
}
