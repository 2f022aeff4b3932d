package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"example.com/typedqueue/page"
)

// servePage shows m's queues at addr, which must be a loopback one, until stop is called: file
// names are not for everybody. No address is no page.
func servePage(m *mirror, addr string) (url string, stop func(), err error) {
	if addr == "" {
		return "", func() {}, nil
	}
	p, err := m.page()
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: localOnly(p), ReadHeaderTimeout: 10 * time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { p.Record(ctx) })
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Close
	return fmt.Sprintf("http://%s/", listener.Addr()), func() {
		cancel()
		_ = server.Close() // who is looking has seen enough
		serving.Wait()
	}, nil
}

// page returns the page of m's queues, named so that they stand in the pipeline's order.
func (m *mirror) page() (*page.Page, error) {
	p := page.New(page.Options{Title: "mirror", Stuck: 10 * time.Second})
	if _, err := page.Watch(p, "1 paths to look at", m.reflector.looks); err != nil {
		return nil, err
	}
	if _, err := page.WatchFIFO(p, "2 changes", m.fifo); err != nil {
		return nil, err
	}
	if _, err := page.Watch(p, "3 paths to bring in line", m.queue); err != nil {
		return nil, err
	}
	return p, nil
}

// checkLoopback refuses an address that other machines can reach.
func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if !isLoopback(host) {
		return fmt.Errorf("%q is not on this machine alone, as 127.0.0.1:8080 is", addr)
	}
	return nil
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// localOnly refuses what a web site makes a browser ask, under a name of the site's that leads
// here (DNS rebinding).
func localOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host // no port
		}
		if !isLoopback(host) {
			http.Error(w, "only for this machine", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
