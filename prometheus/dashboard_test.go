package prometheus_test

import (
	"encoding/json"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// dashboard is what of a Grafana dashboard is checked here.
type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type string
			Datasource datasource
			Definition string
		}
	}
}

type panel struct {
	ID         int
	Title      string
	Datasource datasource
	GridPos    struct{ X, Y, W, H int }
	Targets    []target
}

type target struct {
	RefID        string
	Datasource   datasource
	Expr         string
	LegendFormat string
}

type datasource struct{ Type, UID string }

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	file, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(file, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// query is a form that a query of the dashboard may have. All that varies in it is the metric.
type query struct {
	form *regexp.Regexp
	kind dto.MetricType
}

// queries are all the forms. So few are needed that a parser of PromQL, with what it makes the
// module depend on, is not: what has one of these forms is right if the form is.
var queries = func() []query {
	form := func(text string) *regexp.Regexp {
		text = strings.ReplaceAll(regexp.QuoteMeta(text), "METRIC", "([a-z_]+)")
		text = strings.ReplaceAll(text, "QUANTILE", `0\.[0-9]+`)
		return regexp.MustCompile("^" + text + "$")
	}
	return []query{
		{form(`sum by (name) (METRIC{name=~"$name"})`), dto.MetricType_GAUGE},
		{form(`max by (name) (METRIC{name=~"$name"})`), dto.MetricType_GAUGE},
		{form(`sum by (name) (rate(METRIC{name=~"$name"}[$__rate_interval]))`), dto.MetricType_COUNTER},
		{form(`sum by (name) (increase(METRIC{name=~"$name"}[$__rate_interval]))`), dto.MetricType_COUNTER},
		{
			form(`histogram_quantile(QUANTILE, sum by (le, name) (rate(METRIC_bucket{name=~"$name"}[$__rate_interval])))`),
			dto.MetricType_HISTOGRAM,
		},
	}
}()

// metricOf returns the metric that expr asks for, and what type it must have for that.
func metricOf(expr string) (metric string, kind dto.MetricType, ok bool) {
	for _, q := range queries {
		if m := q.form.FindStringSubmatch(expr); m != nil {
			return m[1], q.kind, true
		}
	}
	return "", 0, false
}

// The dashboard asks for each metric that a Collector has, as its type demands, and for no
// other.
func TestDashboard_Queries(t *testing.T) {
	c, r := registered()
	q, _ := newQueue(c, "q")
	families := gather(t, r)
	runtime.KeepAlive(q)

	shown := make(map[string]bool)
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			metric, kind, ok := metricOf(target.Expr)
			if !ok {
				t.Errorf("%s: a query of unknown form: %s", p.Title, target.Expr)
				continue
			}
			if f := families[metric]; f == nil || f.GetType() != kind {
				t.Errorf("%s: %s asks for a %v, but there is %v", p.Title, target.Expr, kind, f)
			}
			if !strings.Contains(target.LegendFormat, "{{name}}") {
				t.Errorf("%s: the legend %q does not tell the queues apart", p.Title, target.LegendFormat)
			}
			shown[metric] = true
		}
	}
	for name := range families {
		if !shown[name] {
			t.Error("not on the dashboard:", name)
		}
	}
}

// Whoever imports it chooses the data source and the queues.
func TestDashboard_Variables(t *testing.T) {
	d := readDashboard(t)
	chosen := datasource{"prometheus", "${datasource}"}
	if len(d.Templating.List) != 2 {
		t.Fatalf("%+v", d.Templating.List)
	}
	if v := d.Templating.List[0]; v.Name != "datasource" || v.Type != "datasource" {
		t.Errorf("%+v", v)
	}
	v := d.Templating.List[1]
	metric, label, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(v.Definition, "label_values("), ")"), ", ")
	if v.Name != "name" || v.Type != "query" || v.Datasource != chosen || label != "name" || exposed()[metric] != dto.MetricType_GAUGE {
		t.Errorf("%+v", v)
	}
	for _, p := range d.Panels {
		if p.Datasource != chosen {
			t.Errorf("%s has the data source %v", p.Title, p.Datasource)
		}
		for _, target := range p.Targets {
			if target.Datasource != chosen {
				t.Errorf("%s: %s has the data source %v", p.Title, target.RefID, target.Datasource)
			}
		}
	}
}

// Each panel, and each query in one, has an id of its own and its place on the grid, which is
// 24 wide.
func TestDashboard_Layout(t *testing.T) {
	type cell struct{ x, y int }
	ids, taken := make(map[int]string), make(map[cell]string)
	for _, p := range readDashboard(t).Panels {
		if other, ok := ids[p.ID]; ok || p.ID == 0 {
			t.Errorf("%s and %s have the id %d", p.Title, other, p.ID)
		}
		ids[p.ID] = p.Title
		at := p.GridPos
		if at.X < 0 || at.Y < 0 || at.W <= 0 || at.H <= 0 || at.X+at.W > 24 {
			t.Errorf("%s is at %+v", p.Title, at)
		}
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other, ok := taken[cell{x, y}]; ok {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[cell{x, y}] = p.Title
			}
		}
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			if target.RefID == "" || refs[target.RefID] {
				t.Errorf("%s has two queries %q, or one without a name", p.Title, target.RefID)
			}
			refs[target.RefID] = true
		}
	}
}
