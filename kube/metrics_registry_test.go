package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	crsource "sigs.k8s.io/controller-runtime/pkg/source"

	"example.com/typedqueue"
	"example.com/typedqueue/kube"
	queueprom "example.com/typedqueue/prometheus"
)

// clientGoMetrics are the names that client-go's queues have at Prometheus.
var clientGoMetrics = []string{
	metrics.DepthKey, metrics.AddsKey, metrics.QueueLatencyKey, metrics.WorkDurationKey,
	metrics.UnfinishedWorkKey, metrics.LongestRunningProcessorKey, metrics.RetriesKey,
}

// freshName returns name with a number that nobody else has: the series of client-go's queues,
// and the names of controllers, last as long as the process.
func freshName(name string) string { return fmt.Sprint(name, lastName.Add(1)) }

var lastName atomic.Int64

// registeredCollector returns the Collector that stands in controller-runtime's registry until t ends.
func registeredCollector(t *testing.T) *queueprom.Collector {
	c, err := queueprom.RegisterWithControllerRuntime(metrics.Registry)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !metrics.Registry.Unregister(c) {
			t.Error("the collector was not registered")
		}
	})
	return c
}

// scrapeMetrics returns what controller-runtime's registry shows over HTTP, by name without
// the subsystem.
func scrapeMetrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	server := httptest.NewServer(promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer server.Close()
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	short := make(map[string]*dto.MetricFamily)
	for name, f := range families {
		short[strings.TrimPrefix(name, metrics.WorkQueueSubsystem+"_")] = f
	}
	return short
}

// seriesOf returns the metric of that name in f, and its labels as name=value.
func seriesOf(t *testing.T, f *dto.MetricFamily, name string) (m *dto.Metric, labels []string) {
	t.Helper()
	for _, m := range f.GetMetric() {
		labels = nil
		found := false
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
			found = found || l.GetName() == "name" && l.GetValue() == name
		}
		if found {
			return m, labels
		}
	}
	t.Fatalf("%s has no series of %s", f.GetName(), name)
	return nil, nil
}

// measuredRun is a run whose metrics do not depend on how fast it was, but for durations.
func measuredRun(q workqueue.TypedRateLimitingInterface[string]) {
	for _, item := range []string{"a", "b", "a", "c"} {
		q.Add(item)
	}
	for range 2 {
		item, _ := q.Get()
		q.AddRateLimited(item)
		q.Done(item)
	}
	q.Get()
	q.Add("d")
}

func hourlyLimiter() typedqueue.RateLimiter[string] {
	return typedqueue.NewItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
}

// In controller-runtime's own registry, a queue of ours and one of client-go's that did the
// same have the same metrics with the same labels, values and buckets.
func TestMetrics_BesideClientGo(t *testing.T) {
	c := registeredCollector(t)
	ourName, theirName := freshName("ours"), freshName("theirs")
	ours := c.MustClaim(ourName)
	q := typedqueue.NewRateLimitingQueue(hourlyLimiter(), typedqueue.Options{Metrics: ours.Metrics()})
	queueprom.Watch(ours, q)
	measuredRun(q)

	_ = priorityqueue.Opts[string]{} // what its package imports makes client-go's queues report
	theirs := workqueue.NewTypedRateLimitingQueueWithConfig[string](hourlyLimiter(),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: theirName})
	defer theirs.ShutDown()
	measuredRun(theirs)

	families := scrapeMetrics(t)
	for _, name := range clientGoMetrics {
		f := families[name]
		m, labels := seriesOf(t, f, ourName)
		n, otherLabels := seriesOf(t, f, theirName)
		if got, want := strings.Join(labels, " "), strings.ReplaceAll(strings.Join(otherLabels, " "), theirName, ourName); got != want {
			t.Errorf("%s has the labels %s, want %s", name, got, want)
		}
		if name == metrics.UnfinishedWorkKey || name == metrics.LongestRunningProcessorKey {
			if m.GetGauge().GetValue() <= 0 { // theirs is 0 until its ticker has come
				t.Errorf("%s: %v", name, m)
			}
			continue
		}
		if got, want := measured(m), measured(n); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if f := families["processing"]; f.GetMetric()[0].GetGauge().GetValue() != 1 {
		t.Error(f)
	}

	ours.Remove()
	after := scrapeMetrics(t)
	seriesOf(t, after[metrics.DepthKey], theirName)
	for name, f := range after {
		if strings.Contains(f.String(), ourName) {
			t.Errorf("after Remove, there is still %s: %v", name, f)
		}
	}
	runtime.KeepAlive(q)
}

// measured returns what of m must be equal after the same run.
func measured(m *dto.Metric) any {
	if m.Histogram == nil {
		return m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	all := []any{m.GetHistogram().GetSampleCount()}
	for _, b := range m.GetHistogram().GetBucket() {
		all = append(all, b.GetUpperBound())
	}
	return all
}

// The plain Collector has client-go's names too, and the registry says why it cannot have it.
func TestMetrics_PlainCollector(t *testing.T) {
	c := queueprom.NewCollector()
	if err := metrics.Registry.Register(c); err == nil || !strings.Contains(err.Error(), metrics.WorkQueueSubsystem) {
		t.Error(err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	s := c.MustClaim("q")
	q := typedqueue.NewQueue[int](typedqueue.Options{Metrics: s.Metrics()})
	queueprom.Watch(s, q)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]bool)
	for _, f := range families {
		got[f.GetName()] = true
	}
	for _, name := range clientGoMetrics {
		if !got[metrics.WorkQueueSubsystem+"_"+name] {
			t.Error("missing:", name)
		}
	}
	runtime.KeepAlive(q)
}

// A controller of controller-runtime's with a queue of ours that is measured.
func TestMetrics_Controller(t *testing.T) {
	c, name := registeredCollector(t), freshName("widgets")
	reconciled := make(chan reconcile.Request)
	ctl, err := controller.NewUnmanaged(name, controller.Options{
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			s := c.MustClaim(name)
			q := typedqueue.NewRateLimitingQueue[reconcile.Request](limiter, typedqueue.Options{Metrics: s.Metrics()})
			queueprom.Watch(s, q)
			return kube.PriorityQueue[reconcile.Request]{RateLimitingQueue: q}
		},
		Reconciler: reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			reconciled <- r
			return reconcile.Result{}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = ctl.Watch(crsource.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		for i := range 3 {
			r := reconcile.Request{}
			r.Name = fmt.Sprint("widget-", i)
			q.Add(r)
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- ctl.Start(ctx) }()
	for range 2 {
		<-reconciled
	}
	families := scrapeMetrics(t) // while the third is about to be, or is, in Reconcile
	adds, labels := seriesOf(t, families[metrics.AddsKey], name)
	if adds.GetCounter().GetValue() != 3 || strings.Join(labels, " ") != "controller="+name+" name="+name {
		t.Error(labels, adds)
	}
	waited, _ := seriesOf(t, families[metrics.QueueLatencyKey], name)
	if n := waited.GetHistogram().GetSampleCount(); n != 2 && n != 3 {
		t.Error(waited)
	}
	<-reconciled
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
