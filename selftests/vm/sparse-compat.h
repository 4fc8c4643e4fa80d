/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the headers of newer kernels use and sparse 0.6.4 does not know; included before all else
 * when sparse runs, and by nothing else. A newer sparse needs none of it.
 */
/* The two differ in qualifiers only. */
#define __typeof_unqual__	__typeof__
/* MODULE_INFO() asserts that its string has no NUL inside: not a constant to sparse. */
#define __builtin_strlen(s)	(sizeof(s) - 1)
