# The command-line tool as a user meets it: exit codes, one-line complaints, what run hands over, reports.
bats_require_minimum_version 1.5.0

setup() {
    tool=$UDNNMEM_TEST_BUILD/udnnmem
    library=$UDNNMEM_TEST_BUILD/libudnnmem.so
    root=$BATS_TEST_DIRNAME/../..
    cd "$BATS_TEST_TMPDIR"
    cat > run.jsonl <<'END'
{"kind":"header","schema":1,"name":"train","origin":"udnnmem 0.1.0","host":"node7","pid":4711,"started_unix_ns":5}
{"kind":"config","device":0,"device_name":"H, \"100\"","memory_bytes":1073741824,"budget_bytes":367001600,"host_budget_bytes":2147483648,"granule_bytes":2097152,"policy":"demand","verify":0.01}
{"kind":"event","event":"evict","device":0,"buffer":3,"bytes":1048576,"start_ns":10,"end_ns":20}
{"kind":"event","event":"fetch","device":0,"buffer":3,"bytes":1048576,"start_ns":30,"end_ns":45}
{"kind":"event","event":"stall","device":0,"buffer":3,"bytes":1048576,"start_ns":30,"end_ns":45}
{"kind":"summary","ops":48200,"peak_live_bytes":1048576000,"peak_resident_bytes":367001600,"bytes_in":1048576,"stalls":1,"stall_ns":15,"wall_ns":12300000000,"last":false}
{"kind":"summary","ops":48201,"peak_live_bytes":1048576000,"peak_resident_bytes":367001600,"bytes_in":1048576,"stalls":1,"stall_ns":15,"wall_ns":12300000000,"last":true}
END
}

# The last command ended with 2, or $2, and one line on stderr that holds $1.
complained() {
    [ "$status" -eq "${2:-2}" ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == "udnnmem: "*"$1"* ]]
}

json() { python3 -c 'import json, sys; r = json.loads(sys.stdin.readline()); print(eval(sys.argv[1]))' "$1"; }

@test "--version and --help end with 0" {
    run "$tool" --version
    [ "$status" -eq 0 ]
    [ "$output" = "udnnmem 0.1.0" ]
    run "$tool" --help
    [ "$status" -eq 0 ]
    for command in run report doctor; do [[ "$output" == *"$command"* ]]; done
    [[ "$output" != *options-table* ]]
    run "$tool" run --help
    [ "$status" -eq 0 ]
    [[ "$output" == *--host-budget*UDNNMEM_HOST_BUDGET* ]]
    [ "${lines[1]}" = "Usage: udnnmem run [OPTIONS] [--] COMMAND..." ]
    [[ "$output" != *\`* ]]
    help=$output
    for command in run report plan advise top doctor; do
        run "$tool" $command --help
        for line in "${lines[@]}"; do [ "${#line}" -le 100 ]; done
    done
    run "$tool" help run
    [ "$status" -eq 0 ]
    [ "$output" = "$help" ]
    run "$tool" help
    [ "$output" = "$("$tool" --help)" ]
}

@test "bad usage is one line and 2" {
    run "$tool"; complained "required"
    run "$tool" trian; complained "unknown command trian"
    run "$tool" run; complained "no command given"
    run "$tool" run --; complained "no command given"
    run "$tool" run --bugdet 3 true; complained "unknown option --bugdet; did you mean --budget? (udnnmem run --help"
    run "$tool" run --budgt=12GiB; complained "unknown option --budgt; did you mean --budget?"
    run "$tool" run --frobnicate true; complained "unknown option --frobnicate (udnnmem run --help"
    run "$tool" run -x true; complained "unknown option -x (udnnmem run --help"
    run "$tool" plan --memroy 3; complained "unknown option --memroy; did you mean --memory?"
    run "$tool" reprot run.jsonl; complained "unknown command reprot; did you mean report?"
    for value in 0 1 on off; do
        run "$tool" run --disable $value -- true; complained "--disable $value: --disable takes no value of its own: leave the $value out, or write --disable=$value"
    done
    run "$tool" run --disable true
    [ "$status" -eq 0 ]
    run "$tool" run --budget 12 true; complained "--budget 12: expected a unit behind it: did you mean 12GiB?; leave it out for the default, auto"
    run "$tool" run --budget 1KiB true; complained "--budget 1KiB: expected at least 64KiB, which is the least that a device maps, such as 12GiB, 60% or auto; leave it out"
    UDNNMEM_BUDGET=12 run "$tool" run true; complained "UDNNMEM_BUDGET=12: expected a unit behind it: did you mean 12GiB?; unset it for the default, auto"
    for size in 512KiB 1MiB 12Gi 60% auto; do "$tool" run --budget $size true; done
    run "$tool" run --budget "" true; complained '--budget "": expected a size such as 12GiB, 800MiB, 60% or auto; leave it out for the default, auto'
    run "$tool" run ""; complained "run: the command's name is empty"
    for words in --budget "--budget --" "--budget --quiet true"; do run "$tool" run $words; complained "--budget: SIZE is missing"; done
    run "$tool" run --plan -- true; complained "--plan: PATTERN is missing"
    run "$tool" run --trace -- true; complained "--trace: PATTERN is missing"
    run "$tool" run -o -- true; complained "-o: PATTERN is missing"
    for flag in trace:PATTERN only:GLOBS iteration-mark:NAME plan:PATTERN budget:SIZE; do
        run "$tool" run --${flag%:*}= true; complained "--${flag%:*}: ${flag#*:} is missing; leave it out for the default, "
    done
    run "$tool" run --trace "" true; complained "--trace: PATTERN is missing; leave it out"
    run "$tool" plan run.jsonl --emit; complained "--emit: FILE is missing (udnnmem plan --help says more)"
    run "$tool" plan run.jsonl --emit=; complained "--emit: FILE is missing"
    run "$tool" plan run.jsonl --emit --memory 3; complained "--emit: FILE is missing"
    run "$tool" report run.jsonl -o; complained "-o: FILE is missing"
    run "$tool" report run.jsonl --format; complained "--format: FORMAT is missing (udnnmem report --help"
    run "$tool" advise run.jsonl --link --json; complained "--link: GBPS[,GBPS] is missing"
    run "$tool" run -o - true; complained "--trace -: expected a file's name"
    run "$tool" run --disable=banana true; complained "--disable banana: expected 1 or 0 (also on, yes, true and off, no, false)"
    run "$tool" top abc; complained "PID: expected a process id, is abc"
    run "$tool" top -1; complained "PID: expected a process id, is -1"
    run "$tool" help trian; complained "unknown command trian"
    run "$tool" report; complained "report: no TRACE is named, and no udnnmem.*.jsonl.zst is in this folder"
    run "$tool" report run.jsonl --formt json; complained "unknown option --formt; did you mean --format? (udnnmem report --help lists"
    run "$tool" -x report run.jsonl; complained "unknown option -x"
    run "$tool" report run.jsonl --format pdf; complained "pdf"
    run "$tool" doctor now; complained "now"
}

@test "a wrong option is named, by flag or by variable, with what was expected" {
    run "$tool" run --budget 12Gig true
    complained "--budget 12Gig: expected a size such as 12GiB"
    UDNNMEM_VERIFY=2 run "$tool" run true
    complained "UDNNMEM_VERIFY=2: expected a share from 0 to 1"
    run "$tool" run --trace %z.zst true
    complained '"%z"'
}

@test "run hands over the options, the library, the words and the exit code" {
    run "$tool" run --budget 50% --host-budget=1GiB --lazy-free --quiet -- sh -c 'env | grep -E "^(UDNNMEM_[^T]|LD_PRELOAD)" | sort; exit 7'
    [ "$status" -eq 7 ]
    [ "$output" = "LD_PRELOAD=$library
UDNNMEM_BUDGET=50%
UDNNMEM_HOST_BUDGET=1GiB
UDNNMEM_LAZY_FREE=1
UDNNMEM_QUIET=1" ]
    run "$tool" run echo -- --budget a "b  c" --quiet
    [ "$output" = "-- --budget a b  c --quiet" ]
    run "$tool" run -- echo -n x
    [ "$output" = "x" ]
    run "$tool" run sh -c 'kill -TERM $$'
    [ "$status" -eq 143 ]
    run bash -c 'echo in | "$1" run cat' _ "$tool"
    [ "$output" = in ]
}

@test "run: the last of several values counts, and a switch says no to the environment" {
    UDNNMEM_DISABLE=1 UDNNMEM_QUIET=1 run "$tool" run --disable=false --quiet=off --lazy-free --budget 1GiB --budget 2GiB sh -c 'env | grep -E "^UDNNMEM_[^T]" | sort'
    [ "$output" = "UDNNMEM_BUDGET=2GiB
UDNNMEM_DISABLE=0
UDNNMEM_LAZY_FREE=1
UDNNMEM_QUIET=0" ]
}

@test "run: files are meant where it was started" {
    mkdir 'a%b'
    cd 'a%b'
    run "$tool" run --trace 't.%p' --plan sub/plan --debug-file=off sh -c 'cd /; echo "$UDNNMEM_TRACE $UDNNMEM_PLAN $UDNNMEM_DEBUG_FILE"'
    [ "$output" = "${PWD//%/%%}/t.%p ${PWD//%/%%}/sub/plan off" ]
    run "$tool" run -o t sh -c 'echo "$UDNNMEM_TRACE"'
    [ "$output" = "${PWD//%/%%}/t" ]
    run "$tool" run --trace none sh -c 'echo "$UDNNMEM_TRACE"'
    [ "$output" = none ]
    OUT=/data REL=data run "$tool" run --trace '%q{OUT}/t' --plan '%q{REL}/plan' --debug-file '%q{LATER}/log' sh -c 'echo "$UDNNMEM_TRACE $UDNNMEM_PLAN $UDNNMEM_DEBUG_FILE"'
    [ "$output" = "%q{OUT}/t ${PWD//%/%%}/%q{REL}/plan %q{LATER}/log" ]
}

@test "run keeps an LD_PRELOAD, and names the library once" {
    libc=$(ldd /bin/sh | sed -n 's/.*=> \(.*libc.so.6\) .*/\1/p')
    LD_PRELOAD=$libc run "$tool" run sh -c 'echo $LD_PRELOAD'
    [ "$output" = "$library:$libc" ]
    LD_PRELOAD=$library run "$tool" run sh -c 'echo $LD_PRELOAD'
    [ "$output" = "$library" ]
}

@test "run ends as a shell does when there is no such program" {
    run -127 "$tool" run no-such-program-here
    [ "$status" -eq 127 ]
    [ "$output" = "udnnmem: no-such-program-here: command not found" ]
    run -127 "$tool" run ./none
    [ "$status" -eq 127 ]
    run -126 "$tool" run /
    [ "$status" -eq 126 ]
}

@test "run without its library says where it looked" {
    mkdir -p away/bin
    cp "$tool" away/bin
    run away/bin/udnnmem run true
    complained "away/bin/libudnnmem.so nor at"
    mkdir away/lib
    cp "$library" away/lib
    run away/bin/udnnmem run true
    [ "$status" -eq 0 ]
}

@test "a path that LD_PRELOAD cannot hold is said alike by run and doctor" {
    mkdir -p "a b"
    cp "$tool" "$library" "a b"
    run "a b/udnnmem" run true
    complained "a b/libudnnmem.so: LD_PRELOAD cannot hold a path with a space or a colon: install udnnmem"
    run "a b/udnnmem" doctor
    [[ "$output" == *"fail  library: "*"a b/libudnnmem.so: LD_PRELOAD cannot hold a path with a space or a colon: install udnnmem"* ]]
}

@test "report as text" {
    run "$tool" report run.jsonl
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "train (pid 4711 on node7), udnnmem 0.1.0" ]
    [[ "$output" == *"budget 350.0 MiB"* ]]
    [[ "$output" == *"12.30 s, 48,201 ops"* ]]
    [[ "$output" == *"350.0 MiB (35.0 % of peak live)"* ]]
    [[ "$output" != *"killed"* ]]
    head -n 6 run.jsonl > cut.jsonl
    run "$tool" report cut.jsonl
    [[ "$output" == *"48,200 ops"* ]]
    [[ "$output" == *"killed, or still runs"* ]]
}

@test "report: where streams overlap nobody says how near to the best an iteration is, and from host frames nothing fitted" {
    cat > two.jsonl <<'END'
{"kind":"header","schema":1,"name":"two"}
{"kind":"learned","ops":2,"ideal_ns":2000000}
{"kind":"buffer","id":0,"bytes":4096,"persistent":true}
{"kind":"op","index":0,"name":"a","stream":0,"start_ns":0,"duration_ns":1000000,"writes":[0]}
{"kind":"op","index":1,"name":"b","stream":1,"start_ns":100000,"duration_ns":1000000,"reads":[0]}
{"kind":"summary","ops":2,"iterations":9,"fetches":1,"evictions":1,"demand_ns":1300000,"last":true}
END
    run "$tool" report two.jsonl
    [[ "$output" == *"an iteration takes 1.3 ms on demand, as measured; ops of several streams run at the same time"* ]]
    [[ "$output" != *"% of"* ]]
    sed 's/"name":"a"/&,"range":"A"/; s/"name":"b"/&,"range":"B"/' two.jsonl > ranges.jsonl   # two slices of one track may not cross
    "$tool" report ranges.jsonl --format chrome > out
    python3 -c 'import json; e = [x for x in json.load(open("out"))["traceEvents"] if x.get("cat") == "range"]; assert [x["name"] for x in e] == ["A", "B"] and e[0]["tid"] != e[1]["tid"], e'
    sed 's/"start_ns":100000/"start_ns":1000000/' two.jsonl > after.jsonl
    run "$tool" report after.jsonl
    [[ "$output" == *"an iteration takes 1.3 ms on demand, as measured: 153.8 % of the speed"* ]]
    sed 's/"fetches":1,"evictions":1/"served_from_host":2/' two.jsonl > host.jsonl
    run "$tool" report host.jsonl
    [[ "$output" != *"all of it fitted"* ]]
    [[ "$("$tool" report two.jsonl --format json)" == *'"learned":null,"planned":null,"followed":9'* ]]
    head -n 4 two.jsonl > cut.jsonl
    run "$tool" report cut.jsonl
    [[ "$output" == *"damaged from line 5"* || "$output" == *"line 5"* ]]
}

@test "report as text: one of a thing, long times, and when links were measured" {
    cat > one.jsonl <<'END'
{"kind":"header","schema":1,"name":"one","pid":1}
{"kind":"link","device":0,"in_bytes_per_second":12e9,"out_bytes_per_second":13e9,"both_in_bytes_per_second":8e9,"both_out_bytes_per_second":9e9}
{"kind":"summary","ops":1,"allocations":1,"fetches":1,"evictions":1,"stalls":1,"iterations":1,"strayed":1,"over_budget":1,"deadlines":1,"bytes_in":5,"wall_ns":1000000000000,"last":true}
{"kind":"sequence","id":0,"first":"a","ops":1,"turns":1,"iterations":1,"planned_iterations":0,"given_up":1}
{"kind":"misprediction","expected":"e","seen":"s","times":1}
{"kind":"misprediction","expected":"same","seen":"same","times":2}
END
    run "$tool" report one.jsonl
    for words in "16 min 40 s, 1 op, 1 buffer made" "in 1 fetch" "in 1 eviction," "1 launch waited" "0 of 1 iteration that was followed to the end; 1 time another op came than was expected" "1 time: raise" "1 launch was held" "1 op from a: 0 of 1 iteration by plan, 1 turn; 1 plan given up" "stepped out      1 time at s, where e was expected" \
        "stepped out      2 times at same, where it, but of another shape or with other buffers, was expected" \
        "12.00 GB/s in, 13.00 GB/s out, measured while running" "8.00 GB/s in and 9.00 GB/s out at once, measured at the start"; do
        [[ "$output" == *"$words"* ]] || { echo "$words"; return 1; }
    done
    sed 's/"last":true/"last":false/' one.jsonl > cut.jsonl
    "$tool" report cut.jsonl | grep -q "12.00 GB/s in, 13.00 GB/s out, measured at the start"
    sed -n 2p one.jsonl | sed 's/12e9/11e9/' >> cut.jsonl   # the last before the end
    "$tool" report cut.jsonl | grep -q "11.00 GB/s in, 13.00 GB/s out, measured while running"
    sed 's/,"strayed":1//' one.jsonl > straight.jsonl
    "$tool" report straight.jsonl > out
    grep -q "0 of 1 iteration that was followed to the end$" out
}

@test "report of several traces as text: columns that are told apart" {
    for i in 1 2; do
        printf '%s\n' '{"kind":"header","schema":1,"name":"bert-base-batch'$i'"}' '{"kind":"buffer","id":0,"bytes":'$i'024}' '{"kind":"op","index":0,"duration_ns":5,"writes":[0]}' > b$i.jsonl
    done
    run "$tool" report b1.jsonl b2.jsonl
    [ "${lines[0]}" = "#1   bert-base-batch1, b1.jsonl" ]
    [ "${lines[1]}" = "#2   bert-base-batch2, b2.jsonl" ]
    [ "$(echo ${lines[2]})" = "#1 #2" ]
    [ "$(grep '^peak live' <<< "$output" | tr -s ' ')" = "peak live 1.0 KiB 2.0 KiB" ]
    run "$tool" report run.jsonl b1.jsonl
    [ "$(echo ${lines[2]})" = "#1 #2" ]
    sed 's/bert-base-batch/b/' -i b?.jsonl
    run "$tool" report b1.jsonl b2.jsonl
    [ "$(echo ${lines[0]})" = "b1 b2" ]
    run "$tool" report b1.jsonl b1.jsonl
    [ "$(echo ${lines[2]})" = "#1 #2" ]
}

@test "what others wrote does nothing to the terminal" {
    escape=$(printf '\033')
    cat > evil.jsonl <<'END'
{"kind":"header","schema":1,"name":"a\u001b[31mb\nc\u009bd\u202eé","host":"ééééééééééééééé\u0007","pid":1,"rank":0}
{"kind":"config","device":0,"device_name":"d\u001b]0;x\u0007"}
{"kind":"buffer","id":0,"bytes":10}
{"kind":"op","index":0,"name":"o\u001b[2J","range":"aaaaaaaaaaaaaaaaaaaaaaaééééééééééééééééééééééééééééééé\u001b","duration_ns":5,"writes":[0]}
{"kind":"misprediction","expected":"e\u001b","seen":"s\n","times":1}
END
    for words in "report evil.jsonl" "report evil.jsonl evil.jsonl" "report --model evil.jsonl --memory 5B --link 1" "plan evil.jsonl --memory 100% --link 1 --time 0.01" "advise evil.jsonl --time 0.001 --link 1"; do
        "$tool" $words > out
        LC_ALL=C run ! grep -qP '[\x00-\x08\x0b-\x1f\x7f]' out
        iconv -f UTF-8 -t UTF-8 out > /dev/null
    done
    run "$tool" report evil.jsonl evil.jsonl
    [[ "$output" == *"éééééééééé..."* ]]
    [[ "$output" == *'a\x1b[31mb\nc\u009bd\u202eé'* ]]
    run "$tool" report $'no\n\033[1m\xff'
    complained 'no\n\x1b[1m\xff: No such file'
    run "$tool" $'do\nctor'; complained 'unknown command do\nctor'
    run "$tool" report run.jsonl --format $'\033[1m'; complained '\x1b[1m'
    run -127 "$tool" run $'no\nthing'
    [ "$output" = 'udnnmem: no\nthing: command not found' ]
}

@test "report as JSON has every promised field, one object a trace" {
    "$tool" report --format json run.jsonl run.jsonl > out
    [ "$(wc -l < out)" -eq 2 ]
    for field in program device budget_bytes iterations ops ideal_ns iteration_ns peak_live_bytes peak_resident_bytes peak_host_bytes bytes_in bytes_out \
        clean_evictions drops replays replay_ns stall_ns served_from_host mispredictions verified_moves eta_ideal eta_bound link models buffers events; do
        [ "$(json "'$field' in r" < out)" = True ] || { echo "$field is missing"; return 1; }
    done
    [ "$(json 'r["ops"], r["budget_bytes"], r["device"], r["ended"], r["stall_ns"]' < out)" = "(48201, 367001600, 'H, \"100\"', True, 15)" ]
    [ "$(json 'sorted(r["iterations"])' < out)" = "['followed', 'found', 'learned', 'planned']" ]
    [ "$(json 'r["buffers"][0]["id"], r["buffers"][0]["bytes_out"], r["events"]["fetch"]' < out)" = "(3, 1048576, 1)" ]
}

@test "report: --json is --format json; without a trace the newest of this folder" {
    "$tool" report --json run.jsonl | cmp - <("$tool" report --format json run.jsonl)
    run "$tool" report --json --format csv run.jsonl; complained "excludes --json"
    sed 's/"train"/"older"/' run.jsonl | zstd -q > udnnmem.host.2.jsonl.zst
    zstd -q run.jsonl -o udnnmem.host.1.jsonl.zst
    touch -d 2020-01-01 udnnmem.host.2.jsonl.zst
    mkdir udnnmem.folder.jsonl.zst
    run --separate-stderr "$tool" report
    [ "$status" -eq 0 ]
    [ "$stderr" = "udnnmem: reads udnnmem.host.1.jsonl.zst, the newest udnnmem.*.jsonl.zst of this folder" ]
    [[ "$output" == "train "* ]]
}

@test "report as CSV" {
    "$tool" report --format csv run.jsonl run.jsonl > out
    run python3 -c 'import csv; rows = list(csv.DictReader(open("out"))); print(len(rows), rows[1]["ops"], rows[0]["device"], rows[0]["eta_ideal"] == "")'
    [ "$output" = '2 48201 H, "100" True' ]
}

@test "report as a page, for Chrome and for PyTorch; names of formats" {
    for format in html chrome pytorch torch-snapshot; do "$tool" report run.jsonl --format $format -o out.$format; done
    [[ "$(head -c 15 out.html)" == "<!doctype html>" ]]
    python3 -c 'import json; e = json.load(open("out.chrome"))["traceEvents"]; assert [x["ph"] for x in e].count("b") > 0'
    cmp out.pytorch out.torch-snapshot
    run "$tool" report run.jsonl --format pdf
    complained "pdf"
}

@test "report: out of memory is an instant of Chrome's trace; a snapshot of no iteration says so" {
    echo '{"kind":"out_of_memory","device":0,"at_ns":2010,"what":"cuMemAlloc","wanted_bytes":5,"live_bytes":1,"device_bytes":1,"host_bytes":0,"budget_bytes":2,"host_budget_bytes":0,"enough_bytes":6,"buffers":[],"buffer_bytes":[],"on_host":[]}' >> run.jsonl
    [ "$("$tool" report run.jsonl --format chrome | python3 -c 'import json, sys; print([(e["name"], e["ts"], e["args"]["text"][:24]) for e in json.load(sys.stdin)["traceEvents"] if e["ph"] == "i"])')" = "[('out of memory', 2.0, 'out of memory: cuMemAllo')]" ]
    run --separate-stderr "$tool" report run.jsonl --format pytorch -o out
    [ "$status" -eq 0 ]
    [ "$stderr" = "udnnmem: warning: run.jsonl: holds no iteration: the snapshot has nothing to show of it" ]
}

@test "report as csv of a file whose name is no UTF-8 is UTF-8" {
    cp run.jsonl $'caf\xe9.jsonl'
    "$tool" report --format csv $'caf\xe9.jsonl' > out
    run python3 -c 'import csv; print(next(csv.DictReader(open("out", encoding="utf-8")))["trace"].encode("unicode_escape").decode())'
    [ "$status" -eq 0 ]
    [[ "$output" == *'caf\ufffd.jsonl' ]]
}

@test "report of a trace that was cut before its first op, in every format" {
    printf '%s\n' '{"kind":"header","schema":1,"name":"cut"}' '{"kind":"buffer","id":0,"bytes":10,"persistent":true}' '{"kind":"buffer","id":1,"bytes":20,"alloc_op":0,"free_op":3,"run_id":7}' > cut.jsonl
    for format in text html json csv chrome pytorch; do
        run "$tool" report cut.jsonl --format $format -o out.$format
        [ "$status" -eq 0 ]
    done
    python3 -c 'import pickle; assert pickle.load(open("out.pytorch", "rb"))["device_traces"] == [[]]'
    grep -q "it was cut before its first op" out.text
    printf '{"kind":"op' >> cut.jsonl
    printf 'x\n' >> cut.jsonl
    "$tool" report cut.jsonl | grep -q "damaged before its first figures and its first op"
    head -n 2 run.jsonl > young.jsonl
    "$tool" report young.jsonl | grep -q "killed within its first second"
}

@test "report --model: batch sizes are those of the traces as they are given, whatever their ranks" {
    for rank in 0 1; do
        printf '%s\n' '{"kind":"header","schema":1,"name":"r","rank":'$rank'}' '{"kind":"buffer","id":0,"bytes":10}' '{"kind":"op","index":0,"duration_ns":'$((rank + 1))'000,"writes":[0]}' > rank$rank.jsonl
    done
    "$tool" report --model --batch 64,32 rank1.jsonl rank0.jsonl --format json > out
    [ "$(json '[(p["batch"], p["time_ns"]) for p in r["models"]["batch"]["points"]]' < out)" = "[(32, 1000.0), (64, 2000.0)]" ]
}

@test "report: what began earlier than planned is not later than planned" {
    for i in 0 1 2 3; do
        starts=(0 400 900 1600) planned=(0 500 950 1500)
        echo '{"kind":"step","sequence":0,"index":'$i',"name":"op'$i'","planned_start_ns":'${planned[i]}',"start_ns":'${starts[i]}',"planned_ns":10,"took_ns":10}'
    done >> run.jsonl
    [ "$("$tool" report run.jsonl --format json | json '[s["delay_ns"] for s in r["steps"]]')" = "[0, 0, 0, 100]" ]
    run "$tool" report run.jsonl
    [[ "$output" == *"100 ns     at 1.6 us, not 1.5 us: op 3 of sequence 0, op3"* ]]
    [[ "$output" != *"op 2 of"* ]]
}

@test "report --format chrome: an op that began at 0, and a buffer of a large number" {
    cat > start0.jsonl <<'END'
{"kind":"header","schema":1,"name":"t"}
{"kind":"buffer","id":0,"bytes":10,"persistent":true,"label":"weight","run_id":2147483647}
{"kind":"op","index":0,"duration_ns":100,"writes":[0],"start_ns":0}
{"kind":"op","index":1,"duration_ns":100,"reads":[0],"start_ns":500}
{"kind":"event","event":"fetch","buffer":2147483647,"bytes":10,"start_ns":100,"end_ns":200}
END
    (ulimit -v 4000000; "$tool" report start0.jsonl --format chrome) > out
    [ "$(python3 -c 'import json; print([(e["ts"], e["args"].get("buffer")) for e in json.load(open("out"))["traceEvents"] if e["ph"] in "Xb"])')" = "[(0.0, None), (0.5, None), (0.1, 'weight')]" ]
}

@test "out of memory is one line that names the file" {
    python3 -c 'print("""{"kind":"header","schema":1}\n""" + "x" * 400_000_000)' > large.jsonl
    run bash -c 'ulimit -v 600000; "$1" report large.jsonl' _ "$tool"
    complained "out of memory: report large.jsonl" 1
}

@test "report: what only a model needs is refused without one" {
    for option in --memory --link --batch; do
        run "$tool" report run.jsonl $option 1
        complained "$option requires --model"
    done
    printf '%s\n' '{"kind":"header","schema":1,"name":"t"}' '{"kind":"buffer","id":0,"bytes":10}' '{"kind":"op","index":0,"name":"op0","duration_ns":5,"writes":[0]}' > one.jsonl
    "$tool" report one.jsonl --model --memory 0 --link 1 > out
    grep -q "M = 0 B is exceeded at 1 ops" out
    grep -q "no plan in 0 B: the largest op alone needs 10 B: give at least --memory 10B" out
    run "$tool" report one.jsonl --model --memory much
    complained "--memory much: expected a size such as 12GiB"
}

@test "report: a time below 0 has its unit" {
    for batch in 32 64; do
        printf '%s\n' '{"kind":"header","schema":1,"name":"r","batch":'$batch'}' '{"kind":"buffer","id":0,"bytes":10}' '{"kind":"op","index":0,"duration_ns":'$((batch * 125000 - 2000000))',"writes":[0]}' > batch$batch.jsonl
    done
    "$tool" report --model batch32.jsonl batch64.jsonl | grep -q "t_iter(k) = -2.0 ms + k \* 125.0 us"
}

@test "report --model: batch sizes that no trace says are asked for" {
    for i in 0 1; do printf '%s\n' '{"kind":"header","schema":1,"name":"r"}' '{"kind":"buffer","id":0,"bytes":10}' '{"kind":"op","index":0,"duration_ns":1'$i'000,"writes":[0]}' > b$i.jsonl; done
    "$tool" report --model b0.jsonl b1.jsonl | grep -q "batch sizes unknown: give --batch 512,256"
    "$tool" report --model b0.jsonl b1.jsonl --batch 32,32 | grep -q "one batch size in all traces"
    [[ "$("$tool" report --model b0.jsonl)" != *"batch size"* ]]
}

@test "report: an iteration's time is said to be measured, or computed and by moves alone" {
    cat > ran.jsonl <<'END'
{"kind":"header","schema":1,"name":"r","pid":1}
{"kind":"link","device":0,"in_bytes_per_second":1e9,"out_bytes_per_second":1e9}
{"kind":"config","device":0,"budget_bytes":200}
{"kind":"buffer","id":0,"bytes":100}
{"kind":"op","index":0,"duration_ns":1000,"writes":[0]}
{"kind":"summary","ops":2,"evictions":1,"iterations":2,"planned_iterations":1,"planned_ns":1500,"last":true}
END
    "$tool" report ran.jsonl --model > out
    grep -q "speed            an iteration takes 1.5 us by plan, as measured: 66.7 % of the speed" out
    grep -qF "in 200 B an iteration is computed to take 1.0 us by moves alone (udnnmem plan tries what can be computed again too): compute binds at 1 op" out
    [ "$("$tool" report ran.jsonl --model --json | json 'r["models"]["binds"]["recompute"]')" = False ]
    [[ "$("$tool" report --help | tr -s ' \n' ' ')" == *"which binds where, by moves alone"* ]]
}

@test "report --model: no move takes less than no time to begin" {
    printf '%s\n' '{"kind":"header","schema":1,"name":"r"}' '{"kind":"buffer","id":0,"bytes":10}' '{"kind":"op","index":0,"duration_ns":1000,"writes":[0]}' > moves.jsonl
    for n in 1 2 4; do echo '{"kind":"event","event":"fetch","buffer":0,"bytes":'$((n * 1000000))',"start_ns":0,"end_ns":'$((n * n * 100000))'}'; done >> moves.jsonl
    "$tool" report --model moves.jsonl | grep -q "3 moves in: 0 ns + bytes / 2.88 GB/s"
}

@test "report reads compressed traces and traces of an iteration" {
    zstd -q run.jsonl
    "$tool" report run.jsonl.zst > a
    "$tool" report run.jsonl > b
    cmp a b
    run "$tool" report "$root"/tests/traces/bert-base-b256.jsonl.zst
    [ "$status" -eq 0 ]
    [[ "$output" == *"one iteration"* ]]
    "$tool" report --format json "$root"/tests/traces/bert-base-b256.jsonl.zst > out
    [ "$(json 'r["ops"] > 0 and r["peak_live_bytes"] > 0 and r["ideal_ns"] > 0' < out)" = True ]
}

@test "report writes a file, and overwrites only when told" {
    "$tool" report run.jsonl -o out
    "$tool" report run.jsonl | cmp - out
    echo mine > out
    run "$tool" report run.jsonl -o out
    complained "-f overwrites it"
    [ "$(cat out)" = mine ]
    "$tool" report run.jsonl -o out -f
    "$tool" report run.jsonl | cmp - out
    run "$tool" report run.jsonl -o none/out
    complained "No such file or directory"
    run "$tool" report run.jsonl -o out -o out2 -f
    [ -e out2 ]
    for words in "report run.jsonl" doctor "top --once" --help "report --help" options-table; do
        run bash -c '"$1" $2 > /dev/full' _ "$tool" "$words"
        [ "$status" -eq 1 ] || { echo "$words: $status"; return 1; }
    done
    run bash -c '"$1" report run.jsonl > /dev/full' _ "$tool"
    complained "No space left on device" 1
}

@test "report: an old report stays until the new one is whole; what is read is not written over" {
    echo mine > out
    chmod 640 out
    ln -s out link
    run bash -c 'ulimit -f 1; trap "" XFSZ; "$1" report run.jsonl --format html -o out -f' _ "$tool"
    complained "out: File too large" 1
    [ "$(cat out)" = mine ]
    "$tool" report run.jsonl -o link -f
    "$tool" report run.jsonl | cmp - out
    [ -L link ]
    [ "$(stat -c %a out)" = 640 ]
    [ "$(ls | wc -l)" -eq 3 ]
    cp run.jsonl kept
    ln run.jsonl same
    for name in run.jsonl ./run.jsonl same; do
        run "$tool" report run.jsonl -o $name -f
        complained "$name: is what is read (run.jsonl)"
        cmp run.jsonl kept
    done
}

@test "report: - is standard input and output; devices and pipes are written into" {
    "$tool" report run.jsonl > out
    "$tool" report - -o - < run.jsonl | cmp - out
    "$tool" report run.jsonl -o /dev/stdout | cmp - out
    "$tool" report run.jsonl -o /dev/stdout > to
    cmp to out
    [ ! -e - ]
    run "$tool" report run.jsonl -o /dev/full; complained "/dev/full: No space left on device" 1
    mkfifo pipe
    cat pipe > read &
    "$tool" report run.jsonl -o pipe
    wait
    cmp read out
    for path in . none/out run.jsonl/out; do
        run "$tool" report nothing.jsonl -o $path   # before any work
        [ "$status" -eq 2 ]
        [[ "$output" == "udnnmem: $path: "@(Is a directory|No such file or directory|Not a directory) ]]
    done
    ln -s made-by-link link
    "$tool" report run.jsonl -o link
    cmp made-by-link out
    run "$tool" report run.jsonl -o ""; complained "--output: is empty: name a file"
    run "$tool" report ""; complained "TRACE: is empty: name a file"
}

@test "report: what is no trace, and one that is damaged" {
    gzip -k run.jsonl
    run "$tool" report run.jsonl.gz; complained "run.jsonl.gz: is packed by gzip: unpack it first"
    for file in "$tool" "$root/README.md" /dev/zero; do
        run bash -c 'ulimit -v 600000; "$1" report "$2"' _ "$tool" "$file"
        complained "$file: not a trace of udnnmem (JSON lines, plain or zstd)"
    done
    sed 's/.*"event":"stall".*/{"kind":"ev\x01/' run.jsonl > damaged.jsonl
    run --separate-stderr "$tool" report damaged.jsonl --format json
    [ "$status" -eq 0 ]
    [ "$stderr" = "udnnmem: warning: damaged.jsonl: damaged from line 5 on: what follows is left out" ]
    [ "$(json 'r["events"]["fetch"], r["events"]["stall"], r["damaged_from_line"]' <<< "$output")" = "(1, 0, 5)" ]
    [ "$("$tool" report run.jsonl --format json | json 'r["damaged_from_line"]')" = None ]
    "$tool" report damaged.jsonl | grep -q "the trace is damaged from line 5 on"
    "$tool" report damaged.jsonl --format html | grep -q '"damaged_from_line":5,'
    [ "$("$tool" report damaged.jsonl --format chrome | python3 -c 'import json, sys; print([e["args"] for e in json.load(sys.stdin)["traceEvents"] if e["name"] == "process_labels"])')" = "[{'labels': 'damaged from line 5 on: what follows is left out'}]" ]
    [[ "$("$tool" report run.jsonl --format chrome)" != *process_labels* ]]
    # A record that is not as it must be is such a line too, and is named.
    sed 's/"ops":48201/"ops":-1/' run.jsonl > damaged.jsonl
    what="damaged from line 7 on (summary.ops: must be between 0 and 4611686018427387904, is -1): what follows is left out"
    run --separate-stderr "$tool" report damaged.jsonl --format json
    [ "$status" -eq 0 ]
    [ "$stderr" = "udnnmem: warning: damaged.jsonl: $what" ]
    [ "$(json 'r["ops"], r["damaged_from_line"], r["damage"]' <<< "$output")" = "(48200, 7, '$what')" ]
    "$tool" report damaged.jsonl | grep -qF "the trace is $what; the figures are those up to there"
    sed '4i{"a":1}' run.jsonl > damaged.jsonl
    "$tool" report damaged.jsonl 2>&1 | grep -q "damaged.jsonl: damaged from line 4 on (kind: is missing): what follows is left out"
}

@test "report: a trace that was cut short says so, and blames nobody" {
    head -c -20 run.jsonl > cut.jsonl
    what="cut short from line 7 on (the program was killed, still runs, or this is not the whole file): what follows is left out"
    run --separate-stderr "$tool" report cut.jsonl --format json
    [ "$status" -eq 0 ]
    [ "$stderr" = "udnnmem: warning: cut.jsonl: $what" ]
    [ "$(json 'r["ops"], r["damaged_from_line"], r["damage"]' <<< "$output")" = "(48200, 7, '$what')" ]
    [ "$("$tool" report run.jsonl --format json | json 'r["damage"]')" = None ]
    "$tool" report cut.jsonl > out
    grep -qF "the trace is $what; the figures are those up to there" out
    run ! grep -q "the program was killed, or still runs: figures" out
    head -n 4 run.jsonl | head -c -5 > cut.jsonl
    "$tool" report cut.jsonl > out
    grep -q "no figures are known: it is cut short before its first figures and its first op" out
    run ! grep -q "killed within" out
}

@test "a bad trace is one line: file, line, field, rule" {
    run "$tool" report none.jsonl; complained "none.jsonl: No such file or directory"
    : > empty.jsonl
    run "$tool" report empty.jsonl; complained "empty.jsonl: line 1: header: is missing"
    sed 's/"ops":48201/"ops":-1/' run.jsonl > bad.jsonl
    for command in "plan bad.jsonl --memory 1MiB --link 1" "advise bad.jsonl"; do
        printf '%s\n' '{"kind":"header","schema":1}' '{"kind":"op","index":0,"duration_ns":5}' '{"kind":"op","index":1,"duration_ns":-5}' > bad.jsonl
        run "$tool" $command; complained "bad.jsonl: line 3: op.duration_ns: must be between 0"
    done
    printf '%s\n' '{"kind":"header","schema":1}' '{"kind":"summary","ops":-1}' > bad.jsonl
    run "$tool" report bad.jsonl; complained "bad.jsonl: line 2: summary.ops: must be between 0"
    printf '\x28\xb5\x2f\xfdrubbish' > bad.zst
    run "$tool" report bad.zst; complained "bad.zst: "
    run --separate-stderr "$tool" report bad.jsonl run.jsonl --format json
    [ "$status" -eq 1 ]
    [[ "$stderr" == "udnnmem: warning: bad.jsonl: line 2: summary.ops: must be between 0"*"; left out" ]]
    [ "$(json 'r["pid"]' <<< "$output")" = 4711 ]
    run "$tool" report bad.jsonl empty.jsonl
    [ "$status" -eq 2 ]
    [ "${lines[-1]}" = "udnnmem: report: none of the 2 traces can be read" ]
}

@test "doctor without a driver: one line a check, the fix, and 1" {
    LD_LIBRARY_PATH=/nonexistent run "$tool" doctor
    if [ -e /proc/driver/nvidia/version ]; then skip "there is a driver"; fi
    [ "$status" -eq 1 ]
    [[ "$output" == *"fail  libcuda.so.1 not found: needs NVIDIA's driver for CUDA 12.4 or later: install it"* ]]
    for line in "${lines[@]::${#lines[@]}-1}"; do [[ "$line" =~ ^(ok\ \ |warn|fail)\ \ .+ ]]; done
    [[ "${lines[-1]}" =~ ^[0-9]+\ ok,\ [0-9]+\ warn,\ 1\ fail$ ]]
    [[ "$output" == *"ok    library: $library preloads"* ]]
}

@test "doctor divides the host budget by the ranks on this machine" {
    for variable in LOCAL_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE SLURM_NTASKS_PER_NODE; do
        run env "$variable=4" UDNNMEM_HOST_BUDGET=100% "$tool" doctor
        [[ "$output" == *"available to 4 ranks, host budget "* ]]
    done
    SLURM_STEP_TASKS_PER_NODE='3(x2),4' UDNNMEM_HOST_BUDGET=100% run "$tool" doctor
    [[ "$output" == *"available to 4 ranks, host budget "* ]]
    for node in 0:3 1:3 2:4; do
        SLURM_NODEID=${node%:*} SLURM_NTASKS_PER_NODE=8 SLURM_STEP_TASKS_PER_NODE='3(x2),4' UDNNMEM_HOST_BUDGET=100% run "$tool" doctor
        [[ "$output" == *"available to ${node#*:} ranks, host budget "* ]]
    done
    for wrong in LOCAL_WORLD_SIZE=many 'SLURM_STEP_TASKS_PER_NODE=3(x' SLURM_STEP_TASKS_PER_NODE=,; do
        run env "$wrong" "$tool" doctor
        [[ "$output" != *ranks* ]]
    done
}

@test "doctor shows each option's value and where it is from" {
    UDNNMEM_BUDGET=1GiB UDNNMEM_VERIFY=3 UDNNMEM_BUGDET=1 run "$tool" doctor
    [ "$status" -eq 1 ]
    [[ "$output" == *"ok    option: UDNNMEM_BUDGET = 1GiB (environment)"* ]]
    [[ "$output" == *"ok    option: UDNNMEM_HOST_BUDGET = 80% (default)"* ]]
    [[ "$output" == *"fail  option: UDNNMEM_VERIFY=3: expected a share"* ]]
    [[ "$output" == *"warn  option: UDNNMEM_BUGDET is no option of this version and was ignored; did you mean UDNNMEM_BUDGET?"* ]]
    UDNNMEM_TRACE=/nonexistent/t UDNNMEM_DISABLE=1 run "$tool" doctor
    [[ "$output" == *"warn  trace: /nonexistent cannot be written in: No such file or directory"* ]]
    : > there
    UDNNMEM_VERIFY=3 UDNNMEM_TRACE=there UDNNMEM_PLAN=/nonexistent/p UDNNMEM_DEBUG_FILE=there run "$tool" doctor
    [[ "$output" == *"warn  trace: there exists already and is never written over"* ]]
    [[ "$output" == *"warn  plan: /nonexistent cannot be written in"* ]]
    [[ "$output" == *"ok    messages: there"* ]]
    UDNNMEM_TRACE=. UDNNMEM_PLAN=/ run "$tool" doctor
    [[ "$output" == *"warn  trace: . is a directory: name a file in UDNNMEM_TRACE"* ]]
    [[ "$output" == *"warn  plan: / is a directory: name a file in UDNNMEM_PLAN"* ]]
    UDNNMEM_TRACE='t.%q{NOBODY}' run "$tool" doctor
    [[ "$output" == *"warn  option: UDNNMEM_TRACE=t.%q{NOBODY}: NOBODY has no value here"* ]]
    UDNNMEM_DISABLE=1 run "$tool" doctor
    [[ "$output" == *"warn  option: UDNNMEM_DISABLE is set"* ]]
}

@test "doctor tries the software GPU's memory for real" {
    [ -e "$UDNNMEM_TEST_BUILD/softgpu/libcuda.so.1" ] || skip "no software GPU in this build"
    LD_LIBRARY_PATH=$UDNNMEM_TEST_BUILD/softgpu run "$tool" doctor
    [ "$status" -eq 0 ]
    [[ "$output" == *"ok    driver: CUDA 13.0 (needs 12.4) at "*softgpu/libcuda.so.1* ]]
    [[ "$output" == *"ok    virtual memory: mapped, written, remapped, read back"* ]]
    [[ "$output" == *"ok    host frames: memory of NUMA node 0"* ]]
    [[ "$output" =~ (ok  |warn)"  link: "[0-9.]+" GB/s to the device, "[0-9.]+" GB/s back" ]]
}

@test "doctor says what the library will not take as it is given" {
    export LD_LIBRARY_PATH=$UDNNMEM_TEST_BUILD/softgpu SOFTGPU_MEMORY=32MiB
    [ -e "$UDNNMEM_TEST_BUILD/softgpu/libcuda.so.1" ] || skip "no software GPU in this build"
    UDNNMEM_BUDGET=10TiB run "$tool" doctor
    [[ "$output" == *"warn  budget: 10.0 TiB is more than the device has, 32.0 MiB, which is taken instead: lower UDNNMEM_BUDGET"* ]]
    UDNNMEM_BUDGET=12 run "$tool" doctor
    [[ "$output" == *"fail  option: UDNNMEM_BUDGET=12: expected a unit behind it: did you mean 12GiB?"* ]]
    UDNNMEM_BUDGET=0.001% run "$tool" doctor
    [[ "$output" == *"warn  budget: 335 B is less than one granule, 64.0 KiB, which is taken instead: raise UDNNMEM_BUDGET"* ]]
    UDNNMEM_BUDGET=512KiB run "$tool" doctor
    [[ "$output" == *"warn  budget: 512.0 KiB holds hardly any buffer"* ]]
    UDNNMEM_BUDGET=50% run "$tool" doctor
    [[ "$output" == *"ok    budget: 16.0 MiB of 32.0 MiB"* ]]
    UDNNMEM_PLAN=run.jsonl run "$tool" doctor
    [[ "$output" == *"warn  plan: run.jsonl: is no plan of udnnmem: left alone; name another file in UDNNMEM_PLAN, or off"* ]]
    : > plan
    UDNNMEM_PLAN=plan run "$tool" doctor
    [[ "$output" == *"ok    plan: plan"* ]]
    run "$tool" doctor
    [[ "$output" != *budget:* ]]
    SOFTGPU_DEVICES=2 UDNNMEM_BUDGET=10TiB run "$tool" doctor
    [[ "$output" == *"device: 2 visible: 0 is "*" with 32.0 MiB, 1 is "* ]]
    for i in 0 1; do
        [[ "$output" == *"ok    device $i: virtual memory: mapped, written"* ]]
        [[ "$output" == *"warn  device $i: budget: 10.0 TiB is more than"* ]]
    done
}

@test "doctor --json is one object of the same checks" {
    status=0
    UDNNMEM_VERIFY=3 LD_LIBRARY_PATH=$UDNNMEM_TEST_BUILD/softgpu "$tool" doctor --json > out || status=$?
    [ "$status" -eq 1 ]
    [ "$(wc -l < out)" -eq 1 ]
    [ "$(json 'sum(c["verdict"] == "ok" for c in r["checks"]) == r["ok"] and [c["text"][:24] for c in r["checks"] if c["verdict"] == "fail"]' < out)" = "['option: UDNNMEM_VERIFY=3']" ]
}

@test "doctor tells an old driver, and one that crashes" {
    build_driver() { printf '%s\n' "$1" | cc -shared -fPIC -x c - -o libcuda.so.1; }
    build_driver 'int cuInit(unsigned f) { return 0; } int cuDriverGetVersion(int *v) { *v = 11080; return 0; }'
    LD_LIBRARY_PATH=$PWD run "$tool" doctor
    [ "$status" -eq 1 ]
    [[ "$output" == *"fail  driver: needs CUDA 12.4 or later, $PWD/libcuda.so.1 is 11.8: update the driver"* ]]
    build_driver 'int cuDriverGetVersion(int *v) { *(volatile int *)0 = 1; return 0; }'
    LD_LIBRARY_PATH=$PWD run "$tool" doctor
    [ "$status" -eq 1 ]
    [[ "$output" == *"fail  "*"the driver crashed (Segmentation fault): update it"* ]]
    build_driver 'int nothing;'
    LD_LIBRARY_PATH=$PWD run "$tool" doctor
    [ "$status" -eq 1 ]
    [[ "$output" == *"fail  driver: the driver has no cuDriverGetVersion"* ]]
}

@test "the README's table of options is the one that the tool prints" {
    "$tool" options-table > table
    sed -n '/^| variable | flag/,/^$/p' "$root/README.md" | sed '/^$/d' > readme
    diff readme table
}

@test "make install puts the tool where it finds the library" {
    make -s -o all -C "$root" install B="$UDNNMEM_TEST_BUILD" PREFIX=/opt/u DESTDIR="$PWD/root" 2>&1
    run root/opt/u/bin/udnnmem run sh -c 'echo $LD_PRELOAD'
    [ "$status" -eq 0 ]
    [ "$output" = "$PWD/root/opt/u/lib/libudnnmem.so" ]
}
