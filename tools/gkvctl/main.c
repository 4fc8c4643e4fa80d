/* SPDX-License-Identifier: MIT */
/*
 * Command line of gkvctl: global options, dispatch, help.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gkvctl.h"

static const struct command *const commands[] = {
	&cmd_status,   &cmd_namespaces, &cmd_sessions,	  &cmd_watch, &cmd_put,	 &cmd_get,
	&cmd_del,      &cmd_exist,	&cmd_list,	  &cmd_flush, &cmd_identify,
	&cmd_features, &cmd_log,	&cmd_settings,	  &cmd_get_setting,	&cmd_set,
	&cmd_region,   &cmd_module,	&cmd_provider,
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

enum { OPT_KEY_FORMAT = 1 };

static const struct option global_opts[] = {
	{ "socket", required_argument, NULL, 's' },
	{ "namespace", required_argument, NULL, 'n' },
	{ "output", required_argument, NULL, 'o' },
	{ "quiet", no_argument, NULL, 'q' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ "key-format", required_argument, NULL, OPT_KEY_FORMAT },
	{ NULL, 0, NULL, 0 },
};

#define NGLOBAL (sizeof(global_opts) / sizeof(global_opts[0]) - 1)
#define MAX_CMD_OPTS 12

static const char global_help[] =
	"Options of every command:\n"
	"  -s, --socket PATH       the daemon's socket ($GKV_SOCKET, " GKV_SOCKET_DEFAULT ")\n"
	"  -n, --namespace NAME    namespace (default: the lowest one that may be opened)\n"
	"  -o, --output FORMAT     text or json\n"
	"      --key-format FORM   auto: text, or hex:00ff for bytes (default); hex: bare hex\n"
	"                          digits; text: the bytes as they are\n"
	"  -q, --quiet             no progress and no reports, only errors\n"
	"  -h, --help              this text\n"
	"  -V, --version           version\n"
	"\n"
	"Exit status: 0 done, 1 failed, 2 wrong usage, 3 key not found.\n";

static void vmessage(const struct ctl *c, const char *fmt, va_list ap)
{
	fflush(stdout);
	progress_end();
	fprintf(stderr, "gkvctl%s%s: ", c->cmd ? " " : "", c->cmd ? c->cmd : "");
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

int ctl_fail(const struct ctl *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vmessage(c, fmt, ap);
	va_end(ap);
	return EX_FAILED;
}

int ctl_usage(const struct ctl *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vmessage(c, fmt, ap);
	va_end(ap);
	return EX_BADUSE;
}

int parse_u64(const char *text, uint64_t *out)
{
	unsigned int shift = 0;
	unsigned long long v;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -1;
	errno = 0;
	v = strtoull(text, &end, 0);
	if (errno || end == text)
		return -1;
	switch (*end) {
	case 'k':
	case 'K':
		shift = 10;
		break;
	case 'm':
	case 'M':
		shift = 20;
		break;
	case 'g':
	case 'G':
		shift = 30;
		break;
	}
	if (shift)
		end++;
	if (*end || (v << shift) >> shift != v)
		return -1;
	*out = v << shift;
	return 0;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < NCOMMANDS; i++) {
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	}
	return NULL;
}

static void print_help(const struct command *cmd)
{
	if (cmd) {
		printf("Usage: gkvctl [OPTION...] %s%s%s\n\n%s.\n", cmd->name,
		       cmd->args[0] ? " " : "", cmd->args, cmd->summary);
		if (cmd->help[0])
			printf("\n%s", cmd->help);
		printf("\n%s", global_help);
		return;
	}
	printf("Usage: gkvctl [OPTION...] COMMAND [ARGUMENT...]\n\nCommands:\n");
	for (size_t i = 0; i < NCOMMANDS; i++)
		printf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
	printf("\ngkvctl COMMAND --help describes one.\n\n%s", global_help);
}

static void print_version(void)
{
	uint32_t v = gkv_version();

	printf("gkvctl %u.%u.%u\n", v >> 16, (v >> 8) & 0xff, v & 0xff);
}

/* Returns -1 to go on, or the exit code to leave with. */
static int global_option(struct ctl *c, const struct command *cmd, int val, const char *arg)
{
	switch (val) {
	case 's':
		c->socket = arg;
		return -1;
	case 'n':
		c->ns_name = arg;
		return -1;
	case 'o':
		if (strcmp(arg, "json") && strcmp(arg, "text"))
			return ctl_usage(c, "output format \"%s\" is unknown: text or json", arg);
		c->json = !strcmp(arg, "json");
		return -1;
	case 'q':
		c->quiet = true;
		return -1;
	case 'h':
		print_help(cmd);
		return EX_DONE;
	case 'V':
		print_version();
		return EX_DONE;
	case OPT_KEY_FORMAT:
		if (!strcmp(arg, "auto"))
			c->key_format = KEY_AUTO;
		else if (!strcmp(arg, "hex"))
			c->key_format = KEY_HEX;
		else if (!strcmp(arg, "text"))
			c->key_format = KEY_TEXT;
		else
			return ctl_usage(c, "key format \"%s\" is unknown: auto, hex or text", arg);
		return -1;
	}
	return -1;
}

static int bad_option(const struct ctl *c, int val, char **argv)
{
	char dashed[3] = { '-', (char)optopt, '\0' };
	/* Only short options and long ones that lack an argument leave their name in optopt. */
	const char *what = optopt > ' ' && optopt < 0x7f && strncmp(argv[optind - 1], "--", 2) ?
				   dashed :
				   argv[optind - 1];

	if (val == ':')
		return ctl_usage(c, "option %s needs an argument", what);
	return ctl_usage(c, "option %s is unknown or takes no argument; see gkvctl %s%s--help",
			 what, c->cmd ? c->cmd : "", c->cmd ? " " : "");
}

static int run_command(struct ctl *c, const struct command *cmd, int argc, char **argv)
{
	struct option opts[NGLOBAL + MAX_CMD_OPTS + 1];
	size_t n = NGLOBAL;
	int val, ret;

	memcpy(opts, global_opts, sizeof(global_opts[0]) * NGLOBAL);
	for (const struct option *o = cmd->opts; o && o->name && n < NGLOBAL + MAX_CMD_OPTS; o++)
		opts[n++] = *o;
	memset(&opts[n], 0, sizeof(opts[n]));

	c->cmd = cmd->name;
	optind = 0;
	while ((val = getopt_long(argc, argv, ":s:n:o:qhV", opts, NULL)) != -1) {
		if (val == '?' || val == ':')
			return bad_option(c, val, argv);
		if (val >= OPT_CMD) {
			ret = cmd->option(c, val, optarg);
			if (ret)
				return ret;
			continue;
		}
		ret = global_option(c, cmd, val, optarg);
		if (ret >= 0)
			return ret;
	}
	argc -= optind;
	argv += optind;
	if (argc < cmd->min_args)
		return ctl_usage(c, "an argument is missing; usage: gkvctl %s %s", cmd->name,
				 cmd->args);
	if (cmd->max_args >= 0 && argc > cmd->max_args)
		return ctl_usage(c, "argument \"%s\" is one too many; usage: gkvctl %s %s",
				 argv[cmd->max_args], cmd->name, cmd->args);
	ret = cmd->run(c, argc, argv);
	progress_end();
	ctl_close(c);
	return ret;
}

int main(int argc, char **argv)
{
	struct ctl c = { .key_format = KEY_AUTO };
	const struct command *cmd;
	int val, ret;

	opterr = 0;
	while ((val = getopt_long(argc, argv, "+:s:n:o:qhV", global_opts, NULL)) != -1) {
		if (val == '?' || val == ':')
			return bad_option(&c, val, argv);
		ret = global_option(&c, NULL, val, optarg);
		if (ret >= 0)
			return ret;
	}
	if (optind == argc) {
		ctl_usage(&c, "no command given; see gkvctl --help");
		return EX_BADUSE;
	}
	if (!strcmp(argv[optind], "help")) {
		cmd = optind + 1 < argc ? find_command(argv[optind + 1]) : NULL;
		print_help(cmd);
		return EX_DONE;
	}
	cmd = find_command(argv[optind]);
	if (!cmd)
		return ctl_usage(&c, "command \"%s\" is unknown; see gkvctl --help", argv[optind]);
	ret = run_command(&c, cmd, argc - optind, argv + optind);
	/* A full disk behind a redirection must not look like success. */
	if ((fflush(stdout) || ferror(stdout)) && ret == EX_DONE)
		ret = ctl_fail(&c, "standard output: %s", strerror(errno));
	return ret;
}
