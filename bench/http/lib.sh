# What the benchmarks of servers share: servers that are stopped at the end, and rounds that alternate between two of them.
# A script that loads a server by another program than wrk defines its own `load` after it has read this file.
for program in ${needs:-wrk}; do
  command -v "$program" >/dev/null || { echo "needs $program; scripts/install-test-deps installs it" >&2; exit 2; }
done

target=${CARGO_TARGET_DIR:-target}/dist
# The binary that is measured: SPILE, as `scripts/optimize` prints it, or one that cargo has just built.
spile=${SPILE:-$target/spile}
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

# Starts a server whose port is known and waits until it accepts connections.
start_at() { # name, port, command...
  local name=$1 port=$2; shift 2
  url[$name]=http://127.0.0.1:$port
  "$@" >"$logs/$name.out" 2>&1 & pid[$name]=$!
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    kill -0 "${pid[$name]}" || { echo "$name did not start:" >&2; cat "$logs/$name.out" >&2; exit 1; }
  done
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# The path of throttlecrab-server, built from crates.io once. It compiles a `.proto` file, and so needs protoc.
throttlecrab() {
  local root=${CARGO_TARGET_DIR:-target}/peers
  [ -x "$root/bin/throttlecrab-server" ] ||
    cargo install --quiet throttlecrab-server --version 0.4.40 --locked --root "$root" >&2
  echo "$root/bin/throttlecrab-server"
}

ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }

# Loads a server. Prints requests per second, p50 and p99 in µs, errors, and requests.
load() { # name, seconds
  wrk -t1 -c"$connections" -d"$2s" -s "${script_of[$1]:-$script}" "${url[$1]}" | sed -n 's/^RESULT //p'
}
declare -A script_of

# Requests per second, CPU µs of the server per request, p50 and p99 in µs, errors.
measure() { # name
  local before after
  before=$(ticks "${pid[$1]}")
  load "$1" "$seconds" >"$logs/load"
  after=$(ticks "${pid[$1]}")
  awk -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" \
    '{printf "%d %.2f %d %d %d\n", $1, ticks / hz * 1e6 / $5, $2, $3, $4}' "$logs/load"
}

median() { sort -n | awk '{v[NR]=$1} END {printf "%.3f", (NR%2) ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }

# Measures two servers in turn and prints a table; the ratios are the second's against the first's.
alternate() { # first, second
  local round a b
  rm -f "$logs"/{first,second,ratio}{,_cpu}
  # Each server is warmed up once; what it does first is not what it does.
  load "$1" 1 >/dev/null
  load "$2" 1 >/dev/null
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
