# What the HTTP benchmarks share: servers that are stopped at the end, and rounds that alternate between two of them.
command -v wrk >/dev/null || { echo "needs wrk; scripts/install-test-deps installs it" >&2; exit 2; }

target=${CARGO_TARGET_DIR:-target}/dist
logs=$(mktemp -d)
declare -A url pid
stop() { kill "${pid[@]}" 2>/dev/null || true; rm -rf "$logs"; }
trap stop EXIT

# Starts a server and waits for the line that names its address.
start() { # name, command...
  local name=$1 line from; shift
  mkfifo "$logs/$name.out"
  "$@" >"$logs/$name.out" & pid[$name]=$!
  exec {from}<"$logs/$name.out"
  while read -r line <&"$from"; do
    if [[ $line =~ (http://127[^ ]+) ]]; then url[$name]=${BASH_REMATCH[1]}; return; fi
  done
  echo "$name did not start" >&2; exit 1
}

ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }

# Requests per second, CPU µs of the server per request, p50 and p99 in µs, errors.
measure() { # name
  local before after
  before=$(ticks "${pid[$1]}")
  wrk -t1 -c"$connections" -d"${seconds}s" -s "$script" "${url[$1]}" >"$logs/wrk"
  after=$(ticks "${pid[$1]}")
  awk -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" \
    '/^RESULT/ {printf "%d %.2f %d %d %d\n", $2, ticks / hz * 1e6 / $6, $3, $4, $5}' "$logs/wrk"
}

median() { sort -n | awk '{v[NR]=$1} END {printf "%.3f", (NR%2) ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }

# Measures two servers in turn and prints a table; the ratios are the second's against the first's.
alternate() { # first, second
  local round a b
  # Each server is warmed up once; what it does first is not what it does.
  wrk -t1 -c"$connections" -d1s -s "$script" "${url[$1]}" >/dev/null
  wrk -t1 -c"$connections" -d1s -s "$script" "${url[$2]}" >/dev/null
  printf '| round | %s req/s | %s req/s | ratio | %s CPU µs | %s CPU µs | ratio | p50 µs | p99 µs | errors |\n' "$1" "$2" "$1" "$2"
  printf '|---|---|---|---|---|---|---|---|---|---|\n'
  for round in $(seq "$rounds"); do
    # Whoever goes second in one round goes first in the next, so that a machine that slows down slows both.
    if ((round % 2)); then a=$(measure "$1"); b=$(measure "$2"); else b=$(measure "$2"); a=$(measure "$1"); fi
    echo "$a $b" | awk -v round="$round" -v logs="$logs" '{
      printf "| %d | %d | %d | %.3f | %.2f | %.2f | %.3f | %d | %d | %d |\n",
        round, $1, $6, $6 / $1, $2, $7, $2 / $7, $8, $9, $5 + $10
      print $1 >> (logs "/first"); print $6 >> (logs "/second"); print $6 / $1 >> (logs "/ratio")
      print $2 >> (logs "/first_cpu"); print $7 >> (logs "/second_cpu"); print $2 / $7 >> (logs "/ratio_cpu") }'
  done
  printf '| **median** | %.0f | %.0f | **%s** | %s | %s | **%s** | | | |\n' "$(median <"$logs/first")" \
    "$(median <"$logs/second")" "$(median <"$logs/ratio")" "$(median <"$logs/first_cpu")" \
    "$(median <"$logs/second_cpu")" "$(median <"$logs/ratio_cpu")"
}
