#!/usr/bin/env bash
# ranks_test.sh - several processes train one model: as one does, whatever their number, through a resume with another
# number, and to an orderly end when one of them fails. Without mpirun or the mpi module nothing is tried.
# tools/ranks_faults.sh is the long form of the failures.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
module=${JEMPP_MODULE_DIR:-$(dirname "$jempp")}/jempp-mpi.so
if ! command -v mpirun >/dev/null || [ ! -f "$module" ]; then
    echo "[  SKIPPED ] 1 test(s): no mpirun, or no $module"
    exit 0
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0     # Open MPI leaves memory to the end of the process

small="--data shapes --side 8 --model wrn-10-1 --batch 8 --buffer 40 --train-images 200 --valid-images 40 --steps 3
    --warmup 0 --decay-factor 1 --device cpu --threads 1 --conv direct --noise 0.01 --px-margin 0.001"
plain="$small --norm none --optimizer adam --lr 1e-3"
ranks() { mpirun -n "$1" "$jempp" "${@:2}" >out 2>err </dev/null; }
alone() { "$jempp" "$@" >out 2>err </dev/null; }
same() {        # same RUN RUN: every number of the two logs, but for the seconds, within 1e-5
    awk -F'\t' 'NR == FNR { a[FNR] = $0; n = FNR; next }
        { split(a[FNR], v); for (i = 1; i <= 11; i++) if (i != 3 && i != 11) { d = v[i] - $i; m = v[i] < 0 ? -v[i] : v[i]
              if (d > 1e-5 * (1 + m) || -d > 1e-5 * (1 + m)) { print FILENAME ":" FNR ": " $i ", not " v[i]; bad = 1 } } }
        END { exit bad || FNR != n || n != 11 }' "$1/log.tsv" "$2/log.tsv" >out
}
opens() { alone info "$1/last.safetensors" || alone info "$1/prev.safetensors"; }
says() { grep -q -- "$1" err; }
one_message() { [ "$(grep -c '^jempp:' err)" = 1 ]; }
# begin RUN OPTION...: two ranks in the background, mpirun in $run; returns when they have made steps, however busy the
# machine. A run that does not get there is ended, so that nobody waits for its last step.
begin() {
    local i
    # shellcheck disable=SC2086
    mpirun -n 2 "$jempp" train $plain --iterations 1000000 --out "$@" >out 2>err </dev/null &
    run=$!
    for ((i = 0; i < 3000; i++)); do
        [ -f "$1/log.tsv" ] && [ "$(wc -l <"$1/log.tsv")" -gt 20 ] && return
        kill -0 $run 2>/dev/null || break
        sleep 0.1
    done
    bad "$1 does not begin"
    kill -TERM $run 2>/dev/null
    return 1
}
child() { pgrep -P "$1" -x jempp | sed -n "$2p"; }

# shellcheck disable=SC2086
{
    check "one rank, no norm" alone train $plain --iterations 10 --out one
    check "two ranks" ranks 2 train $plain --iterations 10 --out two
    check "two ranks have the losses of one" same one two
    check "four ranks begin" ranks 4 train $plain --iterations 3 --out four
    check "one goes on" alone train --resume --iterations 6 --out four
    check "then two" ranks 2 train --resume --iterations 10 --out four
    check "and the losses are those of one rank" same one four
    check "one rank, batch norm" alone train $small --lr 0.02 --iterations 10 --out norm
    check "two with --sync-bn" ranks 2 train $small --lr 0.02 --iterations 10 --sync-bn --out sync
    check "two ranks have the losses of one" same norm sync
    grow="--px-margin 0 --px-loss bce --start uniform --step-size 0.0001 --steps 1 --steps-max 6 --steps-auroc 0.52
        --start-real 0.3 --iterations 60"
    check "one rank with chains that get longer" alone train $plain $grow --out grow
    check "two" ranks 2 train $plain $grow --out grow2
    check "get them longer in the same steps" eval 'cmp <(cut -f1,15 grow/log.tsv) <(cut -f1,15 grow2/log.tsv)'
    check "than those at the start" test "$(tail -1 grow/log.tsv | cut -f15)" -gt 1
    use="--device cpu --threads 1 --conv direct"
    check "samples of one rank" alone sample norm $use --count 30 --steps 3 --out one.npz
    check "samples of three" ranks 3 sample norm $use --count 30 --steps 3 --out three.npz
    check "are the same" cmp one.npz three.npz
    use="$use --tasks acc,ood,attack --ood uniform --limit 100 --radii 0,8/255 --attack-steps 2"
    check "an evaluation by one rank" alone eval norm $use --out eval-one
    check "and by two" ranks 2 eval norm $use --out eval-two
    check "gives the same figures" eval 'diff <(grep -v seconds eval-one/eval.json) <(grep -v seconds eval-two/eval.json)'
    mkdir weights && echo x >weights/w.pth
    few="eval $PWD/norm --device cpu --threads 1 --tasks acc,fid --inception w.pth --limit 20 --rank-timeout 5
        --out $PWD/eval-few"
    mpirun -n 1 -wdir "$PWD/weights" "$jempp" $few : -n 1 "$jempp" $few >out 2>err </dev/null
    code=$?
    check "a task that one rank cannot do does not end an evaluation" [ $code = 0 ]
    check "and is left out by all" says "task fid left out, as on rank 1"
    ranks 1 train $plain --iterations 9 --out mixed : -n 1 "$jempp" train $plain --iterations 8 --out mixed
    check "other options are refused" says "rank 1 of 2: found 'iterations = 8', but rank 0 has 'iterations = 9'"
    check "by one message" one_message
    ranks 3 train $plain --out three
    check "a batch that the ranks do not divide is refused" says "batch = 8: 3 ranks must divide it"

    begin stopped && kill -USR1 $run                # as much time as it takes; after SIGTERM mpirun kills in a second
    wait $run
    check "SIGUSR1 to mpirun stops the run" grep -q "stopped before its end" out
    check "and what it saved can be resumed" ranks 2 train --resume --minutes 0.001 --out stopped
    begin term && kill -TERM $run
    wait $run
    check "SIGTERM to mpirun ends it" test $? != 0
    check "and what it saved can be resumed" ranks 2 train --resume --minutes 0.001 --out term

    begin killed --checkpoint-minutes 0.001 && kill -KILL "$(child $run 2)"
    wait $run
    check "a killed rank ends all" test $? != 0
    check "with a checkpoint that opens" opens killed

    # a million images of the included model, 12 GB, on rank 1 alone (sanitizers need more address space than that)
    few="sample $here/../models/cifar10-wrn-16-4.safetensors --device cpu --threads 1 --batch 10 --steps 1 --out few.png --count"
    if ! grep -qa __asan_init "$jempp"; then
        SECONDS=0
        mpirun -n 1 "$jempp" $few 2 : -n 1 bash -c "ulimit -v 8000000; exec $jempp $few 1000000" >out 2>err </dev/null
        check "a rank without memory ends all" test $? != 0
        check "with its message" says "jempp: out of memory for the images"
        check "and no other" one_message
        check "long before --rank-timeout" test $SECONDS -lt 120
    fi
    # the data sets of whoever runs this are hidden
    JEMPP_DATA=$tmp/nowhere XDG_DATA_HOME=$tmp/nowhere ranks 2 $few 2 --start gaussian
    check "samples that cannot be drawn are refused" says "chain starts for --start informative"
    check "by one message" one_message

    begin hangs --rank-timeout 5 && kill -STOP "$(child $run 1)"        # in 5 s a busy machine answers
    wait $run
    check "a rank that hangs ends all" test $? != 0
    check "and is missed" says "no answer from another rank for 5 s"
    check "by one message" one_message
    check "with a checkpoint that opens" opens hangs
}
echo "$passed passed, $failed failed"
[ $failed = 0 ]
