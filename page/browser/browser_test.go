package browser

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the screenshots of the README anew")

// chromium is the browser that all tests share; each has its own tab.
var chromium context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	path := find()
	if path == "" {
		fmt.Println("SKIPPED: there is no chromium, so no test of the page in a browser has run")
		_ = flag.Set("test.run", "^$") // for go test to say so too, when it swallows that line
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "page-browser-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path),
		chromedp.UserDataDir(dir),
		chromedp.Headless, chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true),
	)
	defer cancel()
	chromium, cancel = chromedp.NewContext(ctx)
	defer cancel()
	if err := chromedp.Do(chromium); err != nil {
		fmt.Println("chromium does not start:", err)
		return 1
	}
	return m.Run()
}

// find returns the browser's path, or nothing. CHROMIUM names another one.
func find() string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// tab is a page in the browser. What the browser complains of while it is open fails its test.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex // guards problems
	problems []string
}

// open opens an empty tab of a size, which is closed at the end of the test.
func open(t *testing.T, width, height int64, setup ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	b := watched(t, width, height, setup...)
	t.Cleanup(func() {
		for _, p := range b.complaints() {
			t.Error("the browser complains:", p)
		}
	})
	return b
}

// watched is open without a failure for what the browser complains of.
func watched(t *testing.T, width, height int64, setup ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, time.Minute) // not a measure: it ends what hangs
	t.Cleanup(cancel)
	b := &tab{T: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(width, height))
	b.do(setup...)
	return b
}

// listen notes what a page must not do: break its content policy, throw, or open a dialog.
func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Source == log.EntrySourceNetwork {
			break // a 404 that a test asks for
		}
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.problems = append(b.problems, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, e.ExceptionDetails.Text)
	case *cdppage.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "dialog: "+e.Message)
	}
}

func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems)
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// eval returns the value of an expression in the page.
func eval[V any](b *tab, expression string) V {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[V](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression is true in the page, also if the page loads itself anew
// meanwhile.
func (b *tab) until(expression string) {
	b.Helper()
	for {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		if ok {
			return
		}
		select {
		case <-b.ctx.Done():
			b.Fatalf("never true: %s (%v)\n%s", expression, err, b.text())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// click clicks into the middle of an element, as a mouse does. (chromedp's own Click runs script
// in the page, and loses an element that is made anew meanwhile.)
func (b *tab) click(selector string) {
	b.Helper()
	at := eval[[]float64](b, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({ block: "center", behavior: "instant" });
		const r = e.getBoundingClientRect();
		return [r.left + r.width / 2, r.top + r.height / 2];
	})()`, selector))
	b.do(chromedp.MouseClickXY(at[0], at[1]))
}

// typeInto types text into a field, as a keyboard does.
func (b *tab) typeInto(selector, text string) {
	b.Helper()
	b.click(selector)
	b.do(chromedp.KeyEvent(text))
}

func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 5*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	return text
}

// media lets the page believe that somebody prefers a scheme, light or dark.
func media(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

// withoutScript turns JavaScript off in the page.
func withoutScript() chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	})
}

// countTimers lets each page count, as timers, how often its script sets one.
func countTimers() chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{
			Source: `var timers = 0; { const set = setTimeout; setTimeout = (...args) => { timers++; return set(...args); }; }`,
		})
		return err
	})
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}
