# SPDX-License-Identifier: MIT
# Completion of gkvctl for bash. Settings and namespaces are asked of the daemon, when there is one.

_gkvctl_names()
{
	# $1: report, $2...: global options typed so far
	local report=$1
	shift
	gkvctl "$@" -q "$report" >/dev/null 2>&1 || return 0
	gkvctl "$@" -o json "$report" 2>/dev/null | grep -o '"name": *"[^"]*"' | cut -d'"' -f4
}

_gkvctl()
{
	local cur prev cmd="" i word
	local commands="status namespaces sessions watch put get del exist list flush identify
		features log settings get-setting set region module provider help"
	local options="--socket --namespace --output --quiet --help --version --key-format"
	local -a global=()

	COMPREPLY=()
	cur=${COMP_WORDS[COMP_CWORD]}
	prev=${COMP_WORDS[COMP_CWORD - 1]}

	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		case $word in
		-s | --socket)
			global+=(-s "${COMP_WORDS[i + 1]}")
			i=$((i + 1))
			;;
		-n | --namespace | -o | --output | --key-format)
			i=$((i + 1))
			;;
		-*) ;;
		*)
			cmd=$word
			break
			;;
		esac
	done

	case $prev in
	-s | --socket)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	-n | --namespace)
		mapfile -t COMPREPLY < <(compgen -W "$(_gkvctl_names namespaces "${global[@]}")" -- "$cur")
		return
		;;
	-o | --output)
		mapfile -t COMPREPLY < <(compgen -W "text json" -- "$cur")
		return
		;;
	--key-format)
		mapfile -t COMPREPLY < <(compgen -W "auto hex text" -- "$cur")
		return
		;;
	--file | --probe)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--pid)
		mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && printf '%s ' [0-9]*)" -- "$cur")
		return
		;;
	--dir | --all)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	esac

	if [[ -z $cmd ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$commands $options" -- "$cur")
		return
	fi
	if [[ $cur == -* ]]; then
		case $cmd in
		put) options+=" --must-exist --must-not-exist --dir" ;;
		get) options+=" --all" ;;
		list) options+=" --start --prefix --limit --long" ;;
		identify) options+=" --raw --csi" ;;
		log) options+=" --raw" ;;
		watch) options+=" --interval --count" ;;
		region) options+=" --pid --probe" ;;
		module) options+=" --file" ;;
		esac
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
		return
	fi
	case $cmd in
	identify)
		word="ctrl ns nvm-ns active descs kv-ctrl kv-active indep-ns iocs"
		;;
	features)
		if [[ $prev == features ]]; then
			word="get set"
		else
			word="arbitration power temperature write-cache queues irq-coalescing irq-config
				events iocs-profile kv"
		fi
		;;
	log)
		word="supported error smart firmware effects"
		;;
	get-setting)
		word=$(_gkvctl_names settings "${global[@]}")
		;;
	set)
		word=""
		if [[ $prev == set ]]; then
			word=$(_gkvctl_names settings "${global[@]}")
		fi
		;;
	module)
		case $prev in
		module) word="status load unload set" ;;
		set) word="poll_interval_ns max_queue_depth max_user_objects max_user_bytes" ;;
		load) word="carveout_bar=" ;;
		*) return ;;
		esac
		;;
	provider)
		case $prev in
		provider) word="list add del" ;;
		del) word=$(ls /sys/class/misc/gkv/providers 2>/dev/null) ;;
		*) return ;;
		esac
		;;
	help)
		word=$commands
		;;
	put | get)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	*)
		return
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$word" -- "$cur")
}

complete -F _gkvctl gkvctl
