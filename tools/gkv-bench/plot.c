/* SPDX-License-Identifier: MIT */
#include "plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "util.h"

#define WIDTH 960
#define LEFT 84
#define RIGHT 936
#define TOP_A 112 /* histogram */
#define BOTTOM_A 312
#define TOP_B 348 /* cumulative */
#define BOTTOM_B 548
#define HEIGHT 612
#define BINS_PER_DECADE 24
#define MAX_SERIES 8

/* Distinguishable without colour vision, dark enough on white. */
static const char *const colours[MAX_SERIES] = { "#2166ac", "#d95f02", "#1b7837", "#c51b7d",
						 "#6a51a3", "#8c6d31", "#01665e", "#636363" };

struct plot {
	FILE *f;
	double lo; /* log10 of ns at the left edge */
	double hi;
};

static double x_of(const struct plot *p, double ns)
{
	double l = log10(ns < 1e-3 ? 1e-3 : ns);

	l = l < p->lo ? p->lo : l > p->hi ? p->hi : l;
	return LEFT + (RIGHT - LEFT) * (l - p->lo) / (p->hi - p->lo);
}

static void xml_text(FILE *f, const char *s)
{
	for (; *s; s++) {
		switch (*s) {
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		default:
			if ((unsigned char)*s >= ' ')
				fputc(*s, f);
		}
	}
}

static void text(const struct plot *p, double x, double y, const char *attrs, const char *s)
{
	fprintf(p->f, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attrs);
	xml_text(p->f, s);
	fputs("</text>\n", p->f);
}

static void line(const struct plot *p, double x1, double y1, double x2, double y2,
		 const char *colour)
{
	fprintf(p->f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1,
		y1, x2, y2, colour);
}

static void tick_name(char *buf, size_t n, double ns)
{
	static const char *const units[] = { "ns", "µs", "ms", "s" };
	size_t u = 0;

	while (ns >= 999.5 && u + 1 < ARRAY_SIZE(units)) {
		ns /= 1000;
		u++;
	}
	snprintf(buf, n, "%g %s", ns, units[u]);
}

static void x_axis(const struct plot *p)
{
	bool wide = p->hi - p->lo > 3;

	for (int d = (int)floor(p->lo); d <= (int)ceil(p->hi); d++) {
		for (int m = 1; m < 10; m++) {
			double ns = m * pow(10, d), x;
			char name[32];
			bool named = m == 1 || (!wide && (m == 2 || m == 5));

			if (log10(ns) < p->lo - 1e-9 || log10(ns) > p->hi + 1e-9)
				continue;
			x = x_of(p, ns);
			line(p, x, TOP_A, x, BOTTOM_A, m == 1 ? "#d0d0d0" : "#f0f0f0");
			line(p, x, TOP_B, x, BOTTOM_B, m == 1 ? "#d0d0d0" : "#f0f0f0");
			if (!named)
				continue;
			tick_name(name, sizeof(name), ns);
			text(p, x, BOTTOM_B + 20, "text-anchor=\"middle\" class=\"tick\"", name);
		}
	}
	text(p, (LEFT + RIGHT) / 2.0, BOTTOM_B + 46, "text-anchor=\"middle\"", "latency");
}

/* Largest share of one bin over all series, for the scale of the histogram. */
static double bins_of(const struct plot *p, const struct plot_series *s, double *bins, int n)
{
	double top = 0;

	memset(bins, 0, (size_t)n * sizeof(*bins));
	for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
		double ns, at;
		int b;

		if (!s->hist->bucket[i])
			continue;
		ns = ((double)hist_low(i) + (double)hist_low(i + 1 < HIST_BUCKETS ? i + 1 : i)) /
		     2 * s->ns_per_unit;
		at = (log10(ns < 1e-3 ? 1e-3 : ns) - p->lo) * BINS_PER_DECADE;
		b = at < 0 ? 0 : at >= n ? n - 1 : (int)at;
		bins[b] += (double)s->hist->bucket[i] / (double)s->hist->count;
	}
	for (int b = 0; b < n; b++)
		top = fmax(top, bins[b]);
	return top;
}

#define MAX_BINS (20 * BINS_PER_DECADE)

static void histogram(const struct plot *p, const struct plot_series *const *s, size_t n)
{
	double bins[MAX_SERIES][MAX_BINS], top = 0, step;
	int nb = (int)ceil((p->hi - p->lo) * BINS_PER_DECADE - 1e-9);

	if (nb > MAX_BINS)
		nb = MAX_BINS;
	for (size_t i = 0; i < n; i++)
		top = fmax(top, bins_of(p, s[i], bins[i], nb));
	step = top > 0.5 ? 0.2 : top > 0.2 ? 0.1 : top > 0.08 ? 0.04 : 0.02;
	top = ceil(top / step + 1e-9) * step;
	for (double v = 0; v <= top + 1e-9; v += step) {
		double y = BOTTOM_A - (BOTTOM_A - TOP_A) * v / top;
		char name[16];

		line(p, LEFT, y, RIGHT, y, "#e8e8e8");
		snprintf(name, sizeof(name), "%.0f %%", v * 100);
		text(p, LEFT - 8, y + 4, "text-anchor=\"end\" class=\"tick\"", name);
	}
	for (size_t i = 0; i < n; i++) {
		fprintf(p->f,
			"<path fill=\"%s\" fill-opacity=\"0.16\" stroke=\"%s\" "
			"stroke-width=\"1.5\" d=\"M%d %d",
			colours[i], colours[i], LEFT, BOTTOM_A);
		for (int b = 0; b < nb; b++) {
			double y = BOTTOM_A - (BOTTOM_A - TOP_A) * bins[i][b] / top;
			double w = (RIGHT - LEFT) / ((p->hi - p->lo) * BINS_PER_DECADE);

			fprintf(p->f, "L%.1f %.1fH%.1f", LEFT + w * b, y,
				fmin(LEFT + w * (b + 1), RIGHT));
		}
		fprintf(p->f, "V%dZ\"/>\n", BOTTOM_A);
	}
}

static void cumulative(const struct plot *p, const struct plot_series *s, const char *colour)
{
	static const double marks[] = { 0.5, 0.99, 0.999 };
	uint64_t seen = 0;

	fprintf(p->f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"M%.1f %d", colour,
		x_of(p, (double)s->hist->min * s->ns_per_unit), BOTTOM_B);
	for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
		double high;

		if (!s->hist->bucket[i])
			continue;
		seen += s->hist->bucket[i];
		high = i + 1 < HIST_BUCKETS ? (double)hist_low(i + 1) : (double)s->hist->max;
		fprintf(p->f, "L%.1f %.1f",
			x_of(p, fmin(high, (double)s->hist->max) * s->ns_per_unit),
			BOTTOM_B - (BOTTOM_B - TOP_B) * (double)seen / (double)s->hist->count);
	}
	fputs("\"/>\n", p->f);
	for (size_t m = 0; m < ARRAY_SIZE(marks); m++)
		fprintf(p->f,
			"<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#fff\" stroke=\"%s\" "
			"stroke-width=\"2\"/>\n",
			x_of(p, (double)hist_quantile(s->hist, marks[m]) * s->ns_per_unit),
			BOTTOM_B - (BOTTOM_B - TOP_B) * marks[m], colour);
}

static void legend(const struct plot *p, const struct plot_series *const *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		double x = LEFT + (double)(i % 2) * 430, y = 72 + (double)(i / 2) * 18;
		char label[160], p50[32], p99[32], p999[32];

		fprintf(p->f,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"10\" fill=\"%s\"/>\n", x,
			y - 9, colours[i]);
		snprintf(label, sizeof(label), "%s: p50 %s, p99 %s, p99.9 %s", s[i]->name,
			 human_ns(p50, sizeof(p50),
				  (double)hist_quantile(s[i]->hist, 0.5) * s[i]->ns_per_unit),
			 human_ns(p99, sizeof(p99),
				  (double)hist_quantile(s[i]->hist, 0.99) * s[i]->ns_per_unit),
			 human_ns(p999, sizeof(p999),
				  (double)hist_quantile(s[i]->hist, 0.999) * s[i]->ns_per_unit));
		text(p, x + 20, y, "", label);
	}
}

static void draw(struct plot *p, const char *title, const char *subtitle,
		 const struct plot_series *const *s, size_t n)
{
	double shift = n > 4 ? 18.0 * (double)((n - 3) / 2) : 0;

	fprintf(p->f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
		"viewBox=\"0 0 %d %.0f\">\n"
		"<style>text{font-family:'DejaVu "
		"Sans',Helvetica,Arial,sans-serif;font-size:13px;fill:#222}"
		".title{font-size:18px;font-weight:bold}.sub{fill:#555}.tick{font-size:12px;fill:#"
		"444}</style>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
		WIDTH, HEIGHT + shift, WIDTH, HEIGHT + shift);
	text(p, LEFT, 28, "class=\"title\"", title);
	text(p, LEFT, 48, "class=\"sub\"", subtitle);
	legend(p, s, n);
	fprintf(p->f, "<g transform=\"translate(0 %.0f)\">\n", shift);
	x_axis(p);
	for (int v = 0; v <= 100; v += 25) {
		double y = BOTTOM_B - (BOTTOM_B - TOP_B) * v / 100.0;
		char name[16];

		line(p, LEFT, y, RIGHT, y, "#e8e8e8");
		snprintf(name, sizeof(name), "%d %%", v);
		text(p, LEFT - 8, y + 4, "text-anchor=\"end\" class=\"tick\"", name);
	}
	histogram(p, s, n);
	for (size_t i = 0; i < n; i++)
		cumulative(p, s[i], colours[i]);
	for (int i = 0; i < 2; i++) {
		int bottom = i ? BOTTOM_B : BOTTOM_A, top = i ? TOP_B : TOP_A;

		line(p, LEFT, bottom, RIGHT, bottom, "#444");
		line(p, LEFT, top, LEFT, bottom, "#444");
		fprintf(p->f,
			"<text transform=\"translate(24 %d) rotate(-90)\" "
			"text-anchor=\"middle\">%s</text>\n",
			(top + bottom) / 2, i ? "cumulative share" : "share of commands");
	}
	text(p, RIGHT, BOTTOM_B - 8, "text-anchor=\"end\" class=\"tick\"",
	     "circles: p50, p99, p99.9");
	fputs("</g>\n</svg>\n", p->f);
}

int plot_write(const char *path, const char *title, const char *subtitle,
	       const struct plot_series *series, size_t n)
{
	const struct plot_series *shown[MAX_SERIES];
	struct plot p = { .lo = INFINITY, .hi = -INFINITY };
	size_t k = 0;
	int err = 0;

	for (size_t i = 0; i < n && k < MAX_SERIES; i++) {
		const struct hist *h = series[i].hist;

		if (!h->count)
			continue;
		shown[k++] = &series[i];
		p.lo = fmin(p.lo, log10(fmax((double)h->min * series[i].ns_per_unit, 1)));
		p.hi = fmax(p.hi, log10(fmax((double)h->max * series[i].ns_per_unit, 1)));
	}
	if (!k)
		return -ENODATA;
	/* Some air, and never less than a decade. */
	p.lo = floor((p.lo - 0.05) * 10) / 10;
	p.hi = ceil((p.hi + 0.05) * 10) / 10;
	if (p.hi - p.lo < 1) {
		p.lo -= (1 - (p.hi - p.lo)) / 2;
		p.hi = p.lo + 1;
	}
	p.f = fopen(path, "we");
	if (!p.f)
		return -errno;
	draw(&p, title, subtitle, shown, k);
	if (ferror(p.f))
		err = -EIO;
	if (fclose(p.f))
		err = -errno;
	return err;
}
