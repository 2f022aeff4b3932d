package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// node is an etcd server in this process, on loopback.
type node struct {
	config *embed.Config
	server *embed.Etcd // nil while it is stopped
}

// startCluster starts a cluster of so many nodes, which ends with the test.
func startCluster(t *testing.T, n int) []*node {
	t.Helper()
	var nodes []*node
	var initial []string
	for i := range n {
		config := embed.NewConfig()
		config.Name = fmt.Sprintf("node%d", i)
		config.Dir = t.TempDir()
		config.TickMs, config.ElectionMs = 50, 500
		config.UnsafeNoFsync = true
		config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		config.ListenClientUrls = []url.URL{freeURL(t)}
		config.AdvertiseClientUrls = config.ListenClientUrls
		config.ListenPeerUrls = []url.URL{freeURL(t)}
		config.AdvertisePeerUrls = config.ListenPeerUrls
		initial = append(initial, config.Name+"="+config.ListenPeerUrls[0].String())
		nodes = append(nodes, &node{config: config})
	}
	for _, n := range nodes {
		n.config.InitialCluster = strings.Join(initial, ",")
		n.start(t)
		t.Cleanup(n.stop)
	}
	for _, n := range nodes {
		receive(t, "the node is ready", n.server.Server.ReadyNotify())
	}
	return nodes
}

// freeURL returns a URL of a port that is free now.
func freeURL(t *testing.T) url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}

// start starts a node, or starts it again with what it had on disk.
func (n *node) start(t *testing.T) {
	t.Helper()
	server, err := embed.StartEtcd(n.config)
	if err != nil {
		t.Fatal(err)
	}
	n.server = server
}

func (n *node) stop() {
	if n.server != nil {
		n.server.Close()
		n.server = nil
	}
}

func (n *node) endpoint() string { return n.config.ListenClientUrls[0].Host }

func endpoints(nodes []*node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.endpoint())
	}
	return all
}

// dial returns a client, which ends with the test.
func dial(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	soon := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(soon)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// proxy passes connections on to a node, and can be cut.
type proxy struct {
	to       string
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	open  bool
	conns map[net.Conn]bool
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: to, listener: l, open: true, conns: map[net.Conn]bool{}}
	p.serving.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.serving.Wait()
	})
	return p
}

func (p *proxy) endpoint() string { return p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.to)
		if err != nil {
			from.Close()
			continue
		}
		if !p.keep(from, to) {
			continue
		}
		for _, pipe := range [][2]net.Conn{{from, to}, {to, from}} {
			p.serving.Go(func() {
				io.Copy(pipe[0], pipe[1])
				pipe[0].Close()
				pipe[1].Close()
			})
		}
	}
}

// keep remembers connections until they are cut. It closes them if the proxy is cut already.
func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if !p.open {
			c.Close()
		}
		p.conns[c] = true
	}
	return p.open
}

// cut ends all connections, and lets none through until mend.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = false
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = true
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// receive returns what comes from c within a minute.
func receive[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
	}
	return v
}

// hold keeps a task until c is closed or the test is over: a test that fails must not wait for it.
func hold(t *testing.T, c <-chan struct{}) {
	select {
	case <-c:
	case <-t.Context().Done():
	}
}

// background runs f until the test ends, and waits for it then.
func background(t *testing.T, f func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// must retries what fails for a while because a server is away or without a leader. That what is
// to be compacted is so already is no failure: an attempt that seemed to fail had not.
func must[R any](t *testing.T, f func(ctx context.Context) (R, error)) (r R) {
	t.Helper()
	eventually(t, "a request", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var err error
		r, err = f(ctx)
		if errors.Is(err, rpctypes.ErrCompacted) {
			return true
		}
		return err == nil
	})
	return r
}

func put(t *testing.T, client *clientv3.Client, key, value string) int64 {
	t.Helper()
	return must(t, func(ctx context.Context) (*clientv3.PutResponse, error) { return client.Put(ctx, key, value) }).Header.Revision
}

func remove(t *testing.T, client *clientv3.Client, key string) {
	t.Helper()
	must(t, func(ctx context.Context) (*clientv3.DeleteResponse, error) { return client.Delete(ctx, key) })
}

// content returns keys and values below a prefix.
func content(t *testing.T, client *clientv3.Client, prefix string) map[string]string {
	t.Helper()
	got := must(t, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return client.Get(ctx, prefix, clientv3.WithPrefix())
	})
	all := map[string]string{}
	for _, kv := range got.Kvs {
		all[strings.TrimPrefix(string(kv.Key), prefix)] = string(kv.Value)
	}
	return all
}

// compact compacts all but the latest revision.
func compact(t *testing.T, client *clientv3.Client) {
	t.Helper()
	now := must(t, func(ctx context.Context) (*clientv3.GetResponse, error) { return client.Get(ctx, "none") })
	must(t, func(ctx context.Context) (*clientv3.CompactResponse, error) {
		return client.Compact(ctx, now.Header.Revision)
	})
}
