# The shell kernel of a code context. A command is a row of fields on descriptor
# 3, each ended by a NUL byte: the number of variables to change for good and
# then their names and values, the same for this command only, and the code. An
# unset variable has the value "-", any other begins with "+". Events leave as
# JSON lines on 4; what the code writes the daemon reads itself.
__kernel_field() { IFS= read -r -d '' -u 3 "$1" || exit 0; }

__kernel_set() {
  case $2 in
  +*) export "$1=${2:1}" ;;
  *) unset "$1" ;;
  esac
}

__kernel_change() {
  local i n name value
  __kernel_field n
  for ((i = 0; i < n; i++)); do
    __kernel_field name
    __kernel_field value
    [[ $name =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || continue
    if [[ $1 == once ]]; then
      if [[ -v $name ]]; then __kernel_undo+=("$name" "+${!name}"); else __kernel_undo+=("$name" -); fi
    fi
    __kernel_set "$name" "$value"
  done
}

__kernel_restore() {
  local i
  for ((i = 0; i < ${#__kernel_undo[@]}; i += 2)); do
    __kernel_set "${__kernel_undo[i]}" "${__kernel_undo[i + 1]}"
  done
}

trap 'return 130 2>/dev/null' INT
trap 'RANDOM=$SRANDOM' USR1
printf '{"type":"ready"}\n' >&4
while true; do
  __kernel_undo=()
  __kernel_change always
  __kernel_change once
  __kernel_field __kernel_code
  . /dev/fd/5 5<<<"$__kernel_code" 3<&- 4>&- </dev/null
  __kernel_status=$?
  trap 'return 130 2>/dev/null' INT
  __kernel_restore
  if ((__kernel_status)); then
    printf '{"type":"error","name":"ExitStatus","value":"exit status %d","traceback":""}\n' "$__kernel_status" >&4
  fi
  printf '{"type":"done"}\n' >&4
done
