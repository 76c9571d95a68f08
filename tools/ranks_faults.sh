#!/usr/bin/env bash
# ranks_faults.sh [KILLS] - the long form of tests/ranks_test.sh: ranks killed at random moments (KILLS, 50), a full disk
# at rank 0, and, as root, two network namespaces with a link that is cut. Every time all ranks must end, with a
# checkpoint that opens. JEMPP is the program; SEED repeats a sequence of moments.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
jempp=$(realpath "${JEMPP:-$here/build/jempp}")
kills=${1:-50}
RANDOM=${SEED:-1}
work=$(mktemp -d) && trap 'cleanup' EXIT
cd "$work" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMP_WAIT_POLICY=passive
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
failed=0
options="--data shapes --side 8 --model wrn-10-1 --batch 8 --buffer 40 --train-images 200 --valid-images 40 --steps 3
    --device cpu --threads 1 --conv direct --checkpoint-minutes 0.001 --iterations 1000000"

cleanup() {
    ip link del jempp-a 2>/dev/null
    for s in jempp-1 jempp-2; do ip netns del $s 2>/dev/null; done
    mountpoint -q "$work/disk" && umount "$work/disk"
    rm -rf "$work"
}
bad() { echo "FAILED: $*"; tail -n 12 err 2>/dev/null | sed 's/^/    /'; failed=1; }
opens() { "$jempp" info "$1/last.safetensors" >/dev/null 2>out || "$jempp" info "$1/prev.safetensors" >/dev/null 2>out; }
ranks_left() { pgrep -f "^$jempp train.* --out two\$" >/dev/null; }
leftover() { pgrep -f "train.*--out $1\$" >/dev/null; }
has_checkpoint() { local i; for ((i = 0; i < 300; i++)); do [ -f "$1/last.safetensors" ] && return; sleep 0.1; done; return 1; }

# ---- ranks that are killed
for ((i = 0; i < kills; i++)); do
    n=$((2 + i % 3 % 2 * 2)) victim=$((1 + RANDOM % n))
    # shellcheck disable=SC2086
    mpirun -n $n "$jempp" train $options --out "kill-$i" >out 2>err </dev/null &
    run=$!
    has_checkpoint "kill-$i" || bad "run $i does not start"
    sleep "0.$((RANDOM % 1000))"
    kill -KILL "$(pgrep -P $run -x jempp | sed -n "${victim}p")" || bad "run $i: no rank to kill"
    wait $run
    [ $? != 0 ] || bad "run $i of $n ranks: mpirun knows no failure"
    opens "kill-$i" || bad "run $i of $n ranks: no checkpoint opens"
    leftover "kill-$i" && bad "run $i: a rank still runs"
    rm -rf "kill-$i"
done
[ $failed = 1 ] || echo "ok: $kills times a rank was killed; all ended, and a checkpoint opened"

# ---- a full disk
mkdir disk
if mount -t tmpfs -o size=3m tmpfs disk 2>/dev/null; then
    # shellcheck disable=SC2086
    mpirun -n 2 "$jempp" train $options --out disk/run >out 2>err </dev/null &
    run=$!
    has_checkpoint disk/run || bad "the run on a small disk does not start"
    dd if=/dev/zero of=disk/fill bs=1k count=100000 2>/dev/null
    wait $run
    [ $? != 0 ] || bad "a full disk ends the run"
    grep -q "rank 0 of 2: .*No space left on device" err || bad "a full disk has no message"
    [ "$(grep -c '^jempp:' err)" = 1 ] || bad "a full disk has one message"
    opens disk/run || bad "a full disk: no checkpoint opens"
    [ $failed = 1 ] || echo "ok: a full disk at rank 0 ended all: $(grep '^jempp:' err)"
else
    echo "skipped: a full disk: cannot mount a file system"
fi

# ---- two hosts: namespaces with an address each, TCP between them, a link that is cut
if ip netns add jempp-1 2>/dev/null && ip netns add jempp-2; then
    ip link add jempp-a type veth peer name jempp-b
    ip link set jempp-a netns jempp-1 && ip link set jempp-b netns jempp-2
    ip -n jempp-1 addr add 10.77.0.1/24 dev jempp-a && ip -n jempp-2 addr add 10.77.0.2/24 dev jempp-b
    for s in 1:a 2:b; do ip -n "jempp-${s%:*}" link set lo up && ip -n "jempp-${s%:*}" link set "jempp-${s#*:}" up; done
    # mpirun's way to start its helper "on the other host": into its namespace, instead of ssh
    cat >agent <<AGENT
#!/bin/sh
shift; exec nsenter --net=/run/netns/jempp-2 unshare --uts sh -c 'hostname jempp-2; cd $work; '"\$*"
AGENT
    chmod +x agent
    # shellcheck disable=SC2086
    nsenter --net=/run/netns/jempp-1 unshare --uts sh -c "hostname jempp-1; exec mpirun -n 2 --host 10.77.0.1,10.77.0.2 \
        --mca plm_rsh_agent $work/agent --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 \
        --mca oob_tcp_if_include 10.77.0.0/24 --map-by node $jempp train $(echo $options) --rank-timeout 5 --out two" \
        >out 2>err </dev/null &
    run=$!
    if has_checkpoint two; then
        sleep 1
        before=$(wc -l <two/log.tsv)
        ip -n jempp-2 link set jempp-b down
        start=$SECONDS
        while ranks_left && [ $((SECONDS - start)) -lt 60 ]; do sleep 0.2; done
        ranks_left && bad "a cut link: ranks still run after 60 s"
        grep -q '^jempp: no answer from another rank for 5 s' err || bad "a cut link has no message"
        echo "    all ranks ended $((SECONDS - start)) s after the cut, at step $before"
        opens two || bad "a cut link: no checkpoint opens"
        [ $failed = 1 ] || echo "ok: two hosts trained over TCP, and a cut link ended both: $(grep '^jempp:' err)"
    else
        bad "two hosts do not start"
    fi
    # mpirun and its helper wait for each other until the system gives their connection up
    # shellcheck disable=SC2046
    kill -KILL $(pgrep -f "$work/agent") 2>/dev/null
    wait $run
else
    echo "skipped: two hosts: no network namespaces here"
fi
exit $failed
