package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"example.com/typedqueue"
	"example.com/typedqueue/page"
)

var queries = []string{"", "queue=orders", "queue=changes", "queue=invoices+of+November", "key=eu-00", "name=none", "queue=none", "limit=1"}

// The pictures of the README.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	url := serve(t, shop(t, queries...))
	for _, shot := range []struct {
		file, query, scheme string
		width, height       int64
	}{
		{"overview-light.png", "", "light", 1000, 620},
		{"queue-dark-phone.png", "?queue=orders", "dark", 360, 780},
	} {
		b := open(t, shot.width, shot.height, media(shot.scheme))
		b.do(chromedp.Navigate(url + "/" + shot.query))
		png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		must(t, err)
		if len(png) > 200_000 {
			t.Errorf("%s has %d bytes", shot.file, len(png))
		}
		file := filepath.Join("..", shot.file)
		if *update {
			must(t, os.WriteFile(file, png, 0o644))
		} else if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// At every width nothing is cut off, links and fields do not touch, and text can be read, by day
// and by night.
func TestLooks(t *testing.T) {
	t.Parallel()
	url := serve(t, shop(t, queries...))
	for _, at := range []struct {
		width  int64
		scheme string
	}{{320, "light"}, {360, "light"}, {360, "dark"}, {640, "dark"}, {641, "light"}, {1280, "light"}, {1280, "dark"}} {
		b := open(t, at.width, 800, media(at.scheme))
		for _, query := range queries {
			b.do(chromedp.Navigate(url + "/?" + query))
			check(b, fmt.Sprintf("%q at %d, %s", query, at.width, at.scheme), at.width)
		}
	}
}

// Long names and keys, and many digits, do not widen the page.
func TestLooks_LongText(t *testing.T) {
	t.Parallel()
	p := page.New(page.Options{Title: strings.Repeat("Title", 30), Stuck: time.Nanosecond})
	var queues []*typedqueue.DelayingQueue[string]
	for _, c := range []string{"k", "W", "界", "a-", "\x00", "<"} {
		q := typedqueue.NewDelayingQueue[string](typedqueue.Options{TrackTime: true})
		_, err := page.Watch(p, strings.Repeat(c, 256/len(c)), q)
		must(t, err)
		for i := range 1200 {
			q.Add(fmt.Sprint(i, strings.Repeat(c, 1000)))
		}
		q.Get()
		q.AddAfter(strings.Repeat(c, 1000), 10_000*time.Hour)
		queues = append(queues, q)
	}
	defer runtime.KeepAlive(queues)
	url := serve(t, p)
	b := open(t, 360, 800)
	b.do(chromedp.Navigate(url))
	links := eval[[]string](b, `[...document.querySelectorAll("table.queues a")].map(a => a.getAttribute("href"))`)
	for _, query := range append(links, "", "?key=a", "?key="+strings.Repeat("k", 500)) {
		b.do(chromedp.Navigate(url + "/" + query))
		check(b, fmt.Sprintf("%.40q", query), 360)
	}
}

// check checks what is shown, as far as it can be computed.
func check(b *tab, what string, width int64) {
	b.Helper()
	if got := eval[[]int64](b, `[document.documentElement.scrollWidth, document.documentElement.clientWidth]`); got[0] > got[1] || got[1] != width {
		b.Errorf("%s: %d wide in a window of %d", what, got[0], got[1])
	}
	for _, bad := range eval[[]string](b, overlaps) {
		b.Errorf("%s: %s", what, bad)
	}
	for _, bad := range eval[[]string](b, pale) {
		b.Errorf("%s: %s", what, bad)
	}
}

// overlaps returns links and fields that lie on one another, are too small to be hit (24 pixels,
// with the distance to the next), or stick out of the window.
const overlaps = `(() => {
	const bad = [];
	const targets = [...document.querySelectorAll("a, button, input:not([type=hidden])")].map((e) => ({ e, r: e.getBoundingClientRect() }));
	const name = ({ e }) => e.tagName + " " + (e.innerText || e.name).slice(0, 30);
	for (const [i, a] of targets.entries()) {
		if (a.r.width < 10 || a.r.height < 16) bad.push(name(a) + " is " + a.r.width + " by " + a.r.height);
		if (a.r.left < 0 || a.r.right > innerWidth) bad.push(name(a) + " sticks out");
		for (const b of targets.slice(i + 1)) {
			const x = Math.max(a.r.left, b.r.left) - Math.min(a.r.right, b.r.right);
			const y = Math.max(a.r.top, b.r.top) - Math.min(a.r.bottom, b.r.bottom);
			if (x < -0.5 && y < -0.5) bad.push(name(a) + " lies on " + name(b));
			const centre = (r) => [(r.left + r.right) / 2, (r.top + r.bottom) / 2];
			const [ax, ay] = centre(a.r), [bx, by] = centre(b.r);
			if (Math.abs(ay - by) < 24 && x < 0 && y < 24 - a.r.height) bad.push(name(a) + " is too near to " + name(b));
		}
	}
	return bad;
})()`

// pale returns text, and lines of charts, whose contrast with what is behind them is too low.
const pale = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const known = new Map();
	const rgb = (color) => {
		if (!known.has(color)) known.set(color, paint(color));
		return known.get(color);
	};
	const paint = (color) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
		return [...canvas.getImageData(0, 0, 1, 1).data];
	};
	const light = (color) => {
		const [r, g, b] = color.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const color = rgb(getComputedStyle(e).backgroundColor);
			if (color[3] === 255) return color;
			if (color[3] !== 0) throw new Error("a background that lets through");
		}
		throw new Error("no background");
	};
	const bad = new Set();
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; (n = walker.nextNode()); ) {
		const e = n.parentElement;
		if (!n.data.trim() || !e.checkVisibility() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName)) continue;
		const c = contrast(rgb(getComputedStyle(e).color), behind(e));
		if (c < 4.5) bad.add(n.data.slice(0, 30) + ": contrast " + c.toFixed(2));
	}
	for (const e of document.querySelectorAll("input")) {
		const c = contrast(rgb(getComputedStyle(e, "::placeholder").color), behind(e));
		if (c < 4.5) bad.add("placeholder: contrast " + c.toFixed(2));
	}
	for (const e of document.querySelectorAll("svg .line")) {
		const c = contrast(rgb(getComputedStyle(e).stroke), behind(e.parentElement));
		if (c < 3) bad.add("chart: contrast " + c.toFixed(2));
	}
	return [...bad];
})()`
