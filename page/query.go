package page

import (
	"fmt"
	"net/url"
	"strconv"
)

const (
	defaultLimit = 100
	maxLimit     = 1000        // of a list, and of all lists of keys together
	maxQuery     = 4 * maxText // escapes are longer than what they stand for
)

// query is what a request asks for.
type query struct {
	Queue     string // only this; empty: all
	Name, Key string // parts of them
	Limit     int
	Still     bool // not to be refreshed
	JSON      bool
}

// parse reads the parameters of a URL. Those that it does not know are left alone.
func parse(raw string) (query, error) {
	q := query{Limit: defaultLimit}
	v, err := url.ParseQuery(raw)
	if err != nil {
		return q, err
	}
	q.Queue, q.Name, q.Key = v.Get("queue"), v.Get("name"), v.Get("key")
	if max(len(q.Queue), len(q.Name), len(q.Key)) > maxQuery {
		return q, fmt.Errorf("queue, name and key must not be longer than %d bytes", maxQuery)
	}
	if s := v.Get("limit"); s != "" {
		if q.Limit, err = strconv.Atoi(s); err != nil || q.Limit < 1 || q.Limit > maxLimit {
			return q, fmt.Errorf("limit must be a number from 1 to %d", maxLimit)
		}
	}
	switch v.Get("refresh") {
	case "":
	case "off":
		q.Still = true
	default:
		return q, fmt.Errorf("refresh can only be off")
	}
	switch v.Get("format") {
	case "":
	case "json":
		q.JSON = true
	default:
		return q, fmt.Errorf("format can only be json")
	}
	return q, nil
}

// Link returns the relative URL of q.
func (q query) Link() string {
	v := make(url.Values)
	for name, value := range map[string]string{"queue": q.Queue, "name": q.Name, "key": q.Key} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Limited() {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Still {
		v.Set("refresh", "off")
	}
	if q.JSON {
		v.Set("format", "json")
	}
	return "?" + v.Encode()
}

// All returns the query for all queues and keys.
func (q query) All() query { return query{Limit: q.Limit, Still: q.Still} }

// Of returns the query for the queue of this name.
func (q query) Of(name string) query {
	q.Queue, q.Name = plain(name), ""
	return q
}

// Frozen returns q with or without refreshing.
func (q query) Frozen(still bool) query {
	q.Still = still
	return q
}

// AsJSON returns the query for the same as JSON.
func (q query) AsJSON() query {
	q.JSON, q.Still = true, false
	return q
}

// Limited reports whether lists have another length than if nothing is said.
func (q query) Limited() bool { return q.Limit != defaultLimit }

// Longest reports whether lists cannot be longer.
func (q query) Longest() bool { return q.Limit == maxLimit }

// Longer returns q with the longest lists.
func (q query) Longer() query {
	q.Limit = maxLimit
	return q
}
