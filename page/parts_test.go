package page

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"example.com/typedqueue"
)

// at returns the look of a queue at a time, with samples that were taken and had so many ready.
func at(now time.Duration, samples ...sample) *seen {
	return &seen{now: sample{at: now}, samples: samples}
}

func taken(at time.Duration, ready int, adds uint64) sample {
	return sample{at, typedqueue.Stats{Ready: ready, Adds: adds}}
}

// tail returns the last values of a series, with - for those that are not there.
func tail(s series, n int) string {
	var all []string
	for _, v := range s[len(s)-n:] {
		if math.IsNaN(v) {
			all = append(all, "-")
		} else {
			all = append(all, strconv.FormatFloat(v, 'f', -1, 64))
		}
	}
	return strings.Join(all, " ")
}

// A column shows its highest sample, and nothing is made up where there is none.
func TestColumns(t *testing.T) {
	s := at(19900*time.Millisecond,
		taken(3*time.Second, 7, 10), taken(3500*time.Millisecond, 4, 20), // one column
		taken(4*time.Second, 0, 30), // the next: nothing ready is not nothing known
		taken(10*time.Second, 5, 40),
		taken(12*time.Second, 1, 60), taken(13*time.Second, 2, 70),
		taken(20100*time.Millisecond, 9, 100), // by somebody else, since: it counts as of now
	)
	if got, want := tail(s.columns(ready), 11), "- - 7 0 - - 5 2 - - 9"; got != want {
		t.Errorf("columns %s, want %s", got, want)
	}
	if got, want := tail(s.rates(adds), 11), "- - - 20 - - - 10 - - -"; got != want {
		t.Errorf("rates %s, want %s", got, want)
	}
	if got := tail(s.columns(ready), 150); strings.Count(got, "-") != 145 {
		t.Errorf("older columns are not empty: %s", got)
	}
	if got := tail(at(time.Hour, taken(0, 1, 1), taken(time.Hour-window-column, 1, 1), taken(time.Hour-window+column, 3, 1)).columns(ready), 150); !strings.HasPrefix(got, "3 -") && !strings.HasPrefix(got, "- 3 -") {
		t.Errorf("what is too old is shown: %s", got)
	}
}

// A counter that was read too late, by somebody who looked at the same time, is no rate of 2^64.
func TestRates_OutOfOrder(t *testing.T) {
	s := at(4*time.Second, taken(time.Second, 0, 12), taken(2*time.Second, 0, 10))
	if got := tail(s.rates(adds), 3); got != "- 0 -" {
		t.Errorf("rates %s", got)
	}
}

// Samples a second apart, each late by up to half a second, leave no gap.
func TestColumns_LateTicks(t *testing.T) {
	late := func(i int) time.Duration { return time.Duration(i*7919%500) * time.Millisecond }
	var samples []sample
	for i := range 400 {
		samples = append(samples, taken(time.Duration(i)*tick+late(i), 1, 1))
	}
	if got := tail(at(samples[399].at, samples...).columns(ready), 150); strings.Contains(got, "-") {
		t.Errorf("there are gaps: %s", got)
	}
}

// No line leads over a gap, and each gap is marked.
func TestDraw(t *testing.T) {
	nan := math.NaN()
	c := draw(series{nan, 1, 1, 2, nan, nan, 0, 4, nan})
	want := chart{
		Width: 9, Height: 24, Max: 4, Blank: 4,
		Line: "M1 17.5H3V12H4M6 23H7V1H8",
		Area: "M1 24V17.5H3V12H4V24ZM6 24V23H7V1H8V24Z",
		Gaps: []gap{{0, 1}, {4, 2}, {8, 1}},
	}
	if fmt.Sprint(c) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if c := draw(series{nan, nan}); c.Line != "" || c.Blank != 2 {
		t.Errorf("a chart of nothing: %+v", c)
	}
	if c := draw(series{0, 0}); c.Line != "M0 23H2" || c.Max != 0 {
		t.Errorf("a chart of zeros: %+v", c)
	}
}

// The samples that a look returned are not touched by later ones.
func TestKeep(t *testing.T) {
	e := &Entry{}
	var looks [][]sample
	var copies []string
	for i := range 2000 {
		look := e.keep(taken(time.Duration(i)*700*time.Millisecond, i, 0))
		if i%40 == 0 {
			looks = append(looks, look)
			copies = append(copies, fmt.Sprint(look))
		}
	}
	for i := range looks {
		if fmt.Sprint(looks[i]) != copies[i] {
			t.Fatalf("look %d has changed", i)
		}
	}
	if n := len(e.samples); n != 429 { // of 700 ms in 5 min, both ends included
		t.Errorf("%d samples are kept", n)
	}
	if n := cap(e.samples); n > 1200 {
		t.Errorf("there is room for %d", n)
	}
	e.keep(taken(0, 1, 0)) // a look that took long to come
	if n := len(e.samples); n != 429 {
		t.Errorf("%d samples after an old one", n)
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 999999 * time.Microsecond: "999 ms", time.Second: "1.0 s", 59990 * time.Millisecond: "59.9 s",
		time.Minute: "1 m", 61 * time.Second: "1 m 01 s", time.Hour - 1: "59 m 59 s", time.Hour: "1 h 00 m",
		24*time.Hour - 1: "23 h 59 m", 24 * time.Hour: "1 d 00 h", 1000 * time.Hour: "41 d 16 h",
	} {
		if got := seconds(d).String(); got != want {
			t.Errorf("%v is shown as %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0", 1: "0.000000001", 90 * time.Second: "90", math.MaxInt64: "9223372036.854776"} {
		if got, err := json.Marshal(seconds(d)); string(got) != want || err != nil {
			t.Errorf("%v is %s in JSON, want %s (%v)", d, got, want, err)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is shown as %q", n, got)
		}
	}
	for r, want := range map[float64]string{0: "0.00", 0.006: "0.01", 9.99: "9.99", 9.996: "10.0", 99.94: "99.9", 99.96: "100", 12345.6: "12,346"} {
		if got := perSecond(r); got != want {
			t.Errorf("%v is shown as %q, want %q", r, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	long := strings.Repeat("ü", 200)
	for s, want := range map[string]string{
		"": "", strings.Repeat("k", 256): strings.Repeat("k", 256), strings.Repeat("k", 257): strings.Repeat("k", 256),
		long: long[:256], "k" + long: "k" + long[:254], strings.Repeat("\x80", 300): strings.Repeat("\x80", 253),
	} {
		head, bytes := cut(s)
		if head != want && !strings.HasPrefix(s, "\x80") || !strings.HasPrefix(s, head) || len(head) < min(len(s), 252) {
			t.Errorf("%q is cut to %q", s, head)
		}
		if (bytes == 0) != (head == s) || bytes != 0 && bytes != len(s) {
			t.Errorf("%q has %d bytes", s, bytes)
		}
	}
}

// Whatever the text, what is shown is printable, and says the same.
func FuzzPieces(f *testing.F) {
	for _, s := range []string{"", "a", "a\x00b", "\u202ecod.exe", "\xff\xc3", "\ufffd", "'\"\\", "a\u00a0b\u200b", "日本\n", "\U000e0001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var again strings.Builder
		for _, p := range pieces(s) {
			for _, r := range p.Text {
				if !strconv.IsPrint(r) {
					t.Fatalf("%q shows %q", s, r)
				}
			}
			if !utf8.ValidString(p.Text) {
				t.Fatalf("%q shows invalid text %q", s, p.Text)
			}
			switch {
			case s == "":
			case p.Escaped:
				text, err := strconv.Unquote(`"` + p.Text + `"`)
				if err != nil {
					t.Fatal(err)
				}
				again.WriteString(text)
			default:
				again.WriteString(p.Text)
			}
		}
		if again.String() != s {
			t.Fatalf("%q is shown as %q", s, again.String())
		}
	})
}
