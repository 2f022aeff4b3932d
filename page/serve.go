package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strconv"
)

//go:embed page.html
var html string

//go:embed page.css
var style string

//go:embed page.js
var script string

var pages = template.Must(template.New("page").Funcs(template.FuncMap{
	"style":   func() template.CSS { return template.CSS(style) },
	"script":  func() template.JS { return template.JS(script) },
	"pieces":  pieces,
	"label":   label,
	"plain":   plain,
	"of":      func(q queue, shown query) view { return view{q, shown} },
	"grouped": grouped[int],
	"total":   grouped[uint64],
}).Parse(html))

// headers are those of every answer.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src '" + hash(script) + "'; style-src '" + hash(style) + "'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Frame-Options":              "DENY",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cache-Control":                "no-store",
}

// hash returns what a content policy calls a text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// ServeHTTP implements http.Handler; the package's documentation says what it answers to which
// query. Only GET and HEAD are allowed. It reads the queues, makes the answer in memory, and then
// sends it, holding nothing.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	q, err := parse(r.URL.RawQuery)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status, kind, body := p.answer(q)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // who went away needs no answer
}

// answer makes the answer to a query.
func (p *Page) answer(q query) (status int, kind string, body []byte) {
	r, err := p.report(q)
	status = http.StatusOK
	if errors.Is(err, errNoQueue) {
		status = http.StatusNotFound
	}
	if q.JSON {
		return status, "application/json", asJSON(r, err)
	}
	return status, "text/html; charset=utf-8", asHTML(r)
}

func asJSON(r *report, err error) []byte {
	var v any = r
	if err != nil {
		v = map[string]string{"error": err.Error()}
	}
	body, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		panic(err) // all types are ours
	}
	return append(body, '\n')
}

func asHTML(r *report) []byte {
	var b bytes.Buffer
	if err := pages.Execute(&b, r); err != nil {
		panic(err) // the template is ours, and a buffer takes everything
	}
	return b.Bytes()
}
