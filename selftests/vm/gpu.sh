#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The hook "gpu": a GPU stand-in outside the guest, which reaches the guest's RAM and VRAM as a device on
# its bus does, for a queue pair that gkv-gpusim --offer describes in the guest.
#
# usage: gpu.sh BAR-ADDRESS[,ADDRESS-OF-THE-SECOND]|- DESCRIPTION-ADDRESS [gkv-gpusim's OPTION...]
set -euo pipefail

bus=(--bus "$GKV_VM_RAM@0")
bars=${1#-}
[ -z "$bars" ] || bus=(--bus "$GKV_VM_VRAM@${bars%,*}" "${bus[@]}")
[[ $bars != *,* ]] || bus=(--bus "$GKV_VM_VRAM2@${bars#*,}" "${bus[@]}")
exec "${GKV_BUILD:-build}/gkv-gpusim" "${bus[@]}" --attach "$2" "${@:3}"
