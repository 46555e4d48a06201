# Processes that a script starts, waits for and stops, each in a folder of its own ("home"): HOME/pid, HOME/began, HOME/log.
# For script/servers and script/cluster, which source it. Everything runs as an unprivileged user, and is ended by its
# process id alone, and only while that id is still the process that was started.

patience_s=60
ports_from=20000 ports_to=32000 # below the ports that the kernel gives to clients

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
fail() { say "$@"; exit 1; }
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; }

# ---- who runs them ----

# PostgreSQL and RabbitMQ refuse to run as root or should: root hands the folder to nobody.
as_user=()
owner=
if ((EUID == 0)); then
    as_user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
    owner=nobody:nogroup
fi

# Makes FOLDER the processes' own. A folder that holds something else, no MARK, is left alone: open_folder FOLDER MARK
open_folder() {
    local folder=$1 mark=$1/$2
    if [[ -e $folder && ! -e $mark && -n $(ls -A "$folder" 2>/dev/null) ]]; then
        fail "$folder holds something else"
    fi
    mkdir -p "$folder"
    touch "$mark"
    [[ -z $owner ]] || chown "$owner" "$folder" "$mark"
    "${as_user[@]}" test -w "$folder" ||
        fail "$folder cannot be reached by ${owner:-$USER}: one of the folders above it keeps others out"
}

make_folder() {
    "${as_user[@]}" mkdir -p "$1"
}

# ---- ports ----

answers_tcp() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Is there an answer 200? answers_http PORT PATH
answers_http() {
    local status
    (
        exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
        printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' "$2" >&3
        IFS= read -r -t 5 status <&3 || exit 1
        [[ $status == 'HTTP/1.1 200 '* ]]
    ) 2>/dev/null
}

# check_first_port NUMBER COUNT
check_first_port() {
    if ! [[ $1 =~ ^[0-9]{1,5}$ ]] || (($1 == 0 || $1 + $2 > 65536)); then
        fail "'$1' is not the number of the first of $2 ports"
    fi
}

# Prints the first of COUNT ports in a row that are free. Scripts that run side by side have different process ids, so
# they begin in different places and need not agree.
free_ports() {
    local count=$1 blocks try first port free
    blocks=$(((ports_to - ports_from) / count))
    for ((try = 0; try < blocks; try++)); do
        first=$((ports_from + ($$ + try * 37) % blocks * count))
        free=yes
        for ((port = first; port < first + count; port++)); do
            if answers_tcp "$port"; then
                free=no
                break
            fi
        done
        if [[ $free == yes ]]; then
            echo "$first"
            return 0
        fi
    done
    fail 'no free ports'
}

# ---- processes ----

# Prints a process's state letter, its flags, and when it began, which with its id is a name that is never used again.
process_state() {
    local line fields
    { line=$(<"/proc/$1/stat"); } 2>/dev/null || line=
    read -r -a fields <<<"${line##*) }"
    echo "${fields[0]:-X} ${fields[6]:-0} ${fields[19]:-never}"
}

# Is the process in HOME/pid the one that was started, and not about to end?
is_running() {
    local home=$1 letter flags began pending
    [[ -e $home/pid && -e $home/began ]] || return 1
    read -r letter flags began <<<"$(process_state "$(<"$home/pid")")"
    [[ $began == "$(<"$home/began")" && $letter != [ZX] ]] || return 1
    pending=$(sed -n 's/^SigPnd:[[:space:]]*/0x/p' "/proc/$(<"$home/pid")/status" 2>/dev/null) || return 1
    (((flags & 4) == 0 && (${pending:-0x100} & 0x100) == 0)) # neither exiting nor to be killed
}

# A process that was killed may need a while: until then its ports and its data are in use.
await_end() {
    local home=$1 pid letter flags began end=$((SECONDS + 10))
    [[ -e $home/pid && -e $home/began ]] || return 0
    pid=$(<"$home/pid")
    while ((SECONDS < end)); do
        read -r letter flags began <<<"$(process_state "$pid")"
        if [[ $began != "$(<"$home/began")" ]]; then
            return 0
        elif [[ $letter == [ZX] ]] && (($(find "/proc/$pid/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l) <= 1)); then
            return 0 # a zombie: its exit code was not read yet
        fi
        sleep 0.02
    done
}

# A port that the process of HOME will use must not be another's: check_port HOME PORT
check_port() {
    local home=$1 port=$2
    is_running "$home" && return 0
    await_end "$home"
    ! answers_tcp "$port" || fail "port $port, which ${home#"$folder/"} wants, is taken by another program"
}

# Starts a process in a session of its own, with its output in HOME/log: launch HOME COMMAND...
launch() {
    local home=$1 pid
    shift
    await_end "$home"
    (cd "$home" && exec setsid "${as_user[@]}" "$@") >>"$home/log" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"$home/pid"
    process_state "$pid" | cut -d' ' -f3 >"$home/began"
}

# Waits until a command succeeds, or the process of HOME is gone: await HOME COMMAND...
await() {
    local home=$1 end=$((SECONDS + patience_s))
    shift
    until "$@" >/dev/null 2>&1; do
        if ! is_running "$home" || ((SECONDS >= end)); then
            say "$home does not answer; its log ends with:"
            tail -n 15 "$home/log" >&2
            return 1
        fi
        sleep 0.05
    done
}

# The process and what it started, the youngest last.
family() {
    local child
    echo "$1"
    for child in $(ps -o pid= --ppid "$1"); do
        family "$child"
    done
}

# Asks the process of HOME to end, insists after a while, and takes its children along: stop_one HOME SIGNAL [SECONDS]
stop_one() {
    local home=$1 signal=$2 patience=${3:-10} pid members end
    if is_running "$home"; then
        pid=$(<"$home/pid")
        mapfile -t members < <(family "$pid")
        kill -CONT "$pid" 2>/dev/null || true # a test may have stopped it
        kill -"$signal" "$pid" 2>/dev/null || true
        end=$((SECONDS + patience))
        while is_running "$home" && ((SECONDS < end)); do
            sleep 0.05
        done
        if is_running "$home"; then
            kill -KILL "${members[@]}" 2>/dev/null || true
        fi
        kill -KILL -- "-$pid" 2>/dev/null || true # what is left of its session
    fi
    await_end "$home"
    rm -f "$home/pid" "$home/began"
}
