package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// lockedBuffer may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// get asks for a page of the server at host, under a name.
func get(t *testing.T, url, host string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	req.Host = host
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, string(content)
}

// The command itself shows its queues from its start to its end.
func TestHTTP(t *testing.T) {
	src, dst := trees(t, "a", "d/b", "d/<b>")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log lockedBuffer
	exit := make(chan int, 1)
	go func() { exit <- run(ctx, []string{"-http", "127.0.0.1:0", src, dst}, io.Discard, &log) }()

	var url string
	eventually(t, "the page is there", func() bool {
		m := regexp.MustCompile(`queues: (http://127\.0\.0\.1:\d+/)`).FindStringSubmatch(log.String())
		if m != nil {
			url = m[1]
		}
		return m != nil
	})
	eventually(t, "the page shows that all is copied", func() bool {
		var report struct {
			Queues struct {
				Items []struct {
					Name              string
					Ready, Processing int
					Adds              struct{ Total int }
				}
			}
		}
		status, body := get(t, url+"?format=json", "")
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		must(t, json.Unmarshal([]byte(body), &report))
		all := report.Queues.Items
		return len(all) == 3 && all[0].Name == "1 paths to look at" && all[1].Name == "2 changes" && all[2].Name == "3 paths to bring in line" &&
			all[1].Adds.Total >= 4 && all[2].Adds.Total >= 4 && all[2].Ready+all[2].Processing == 0 && exists(dst, "d/<b>")
	})
	for host, want := range map[string]int{
		"": http.StatusOK, "localhost": http.StatusOK, "[::1]:80": http.StatusOK, "127.0.0.1:1": http.StatusOK,
		"example.com": http.StatusForbidden, "127.0.0.1.example.com:80": http.StatusForbidden,
	} {
		if status, _ := get(t, url, host); status != want {
			t.Errorf("asked as %q: %d", host, status)
		}
	}

	cancel()
	if got := <-exit; got != exitSame {
		t.Errorf("exit code %d\n%s", got, log.String())
	}
	if res, err := http.Get(url); err == nil {
		_ = res.Body.Close()
		t.Error("the page outlives the mirror")
	}
}

// A path that is being worked on is on the page, whatever its name.
func TestHTTP_Keys(t *testing.T) {
	src, dst := trees(t)
	m, done, err := setUp(src, dst, false, quick, t.Logf)
	must(t, err)
	defer done()
	url, stop, err := servePage(m, "localhost:0")
	must(t, err)
	defer stop()
	m.queue.AddAll("d/<b>", "next")
	m.queue.Get()
	m.queue.AddAfter("later", time.Hour)
	_, body := get(t, url+"?queue=3+paths+to+bring+in+line", "")
	for _, want := range []string{"d/&lt;b&gt;", "next", "later", "in 59 m 59 s"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not on the page:\n%s", want, body)
		}
	}
	runtime.KeepAlive(m) // the page does not
}

// Where everybody could look, nothing is served.
func TestHTTP_Refused(t *testing.T) {
	src, dst := trees(t, "a")
	for addr, want := range map[string]int{
		":8080": exitUsage, "0.0.0.0:8080": exitUsage, "192.0.2.1:80": exitUsage, "example.com:80": exitUsage, "[::]:80": exitUsage,
		"8080": exitUsage, "127.0.0.1": exitUsage, "127.0.0.1:x": exitFailed,
	} {
		var log bytes.Buffer
		if got := run(t.Context(), []string{"-once", "-http", addr, src, dst}, io.Discard, &log); got != want || log.Len() == 0 {
			t.Errorf("-http %s: exit code %d, want %d: %s", addr, got, want, &log)
		}
	}
	if _, _, err := servePage(nil, ""); err != nil {
		t.Errorf("without an address: %v", err)
	}
	if exists(dst, "a") {
		t.Error("something was mirrored")
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
