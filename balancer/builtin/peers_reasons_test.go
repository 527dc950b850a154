package builtin

const (
	dechunked = "nginx reads the whole body and sends its length, although buffering is off, if the body has already arrived."
	strict    = "Two servers may disagree about the meaning; Quell refuses what RFC 9112 does not allow."
	headFirst = "Quell sends the head on before the first chunk has come, so that long uploads need no buffer; the instance sees " +
		"the connection " +
		"end. HAProxy and nginx had the broken chunk in the same buffer."
	statusOnly  = "All refuse it. The status differs."
	hopByHopWhy = "Fields that belong to one connection are not passed on (RFC 9110, section 7.6.1)."
	bufferSize  = "The limit of a head is 64 KiB in Quell, 16 KB in HAProxy and 8 KB for each line in nginx."
	cannotTrust = "Fields about the client are replaced, unless they come from a trusted proxy (balancer.trusted_proxies)."
	ownerClosed = "nginx takes the end of the sending side for the end of the client. Quell and HAProxy answer."
	silent1xx   = "nginx 1.22 takes an interim answer for the final one and does not read a further request. " +
		"Quell also removes the fields of the instance's connection."
)

// bytesReasons are the reasons why the proxies do not do the same.
var bytesReasons = map[string]string{
	"length, then chunks": "A request of two lengths is how requests are smuggled. RFC 9112, section 6.1, allows a " +
		"proxy to repair it, as HAProxy does.",
	"chunks, then length":   "As above.",
	"the same length twice": "RFC 9112, section 6.3, allows both. One valid length is passed on.",
	"a list of lengths":     "RFC 9112, section 6.3, allows both. Go's HTTP library refuses lists.",
	"a length between blanks": "Blanks around a value do not belong to it (RFC 9110, section 5.5). nginx does not " +
		"accept a tab.",
	"chunks":                            dechunked,
	"chunks with extensions":            dechunked + " Extensions are for one connection only; nobody passes them on.",
	"a chunk size with zeros before it": dechunked,
	"a chunk size that is no number":    headFirst,
	"a chunk size beyond 64 bits":       headFirst,
	"a chunk size with a sign":          headFirst,
	"a chunk longer than its size":      headFirst,
	"chunk lines that end with LF": "A chunk's lines end with CRLF (RFC 9112, section 7.1). A bare LF has been used to " +
		"smuggle requests.",
	"a request trailer": "nginx drops trailers of requests.",
	"a trailer that sets the host": "Quell drops fields that must not be in a trailer (RFC 9110, section 6.5.1). nginx " +
		"drops all trailers.",
	"the coding identity":                 statusOnly,
	"the coding gzip, chunked":            statusOnly,
	"the coding chunked, gzip":            statusOnly,
	"the coding chunked twice":            statusOnly,
	"an unknown coding":                   statusOnly,
	"a coding behind a control character": statusOnly,
	"a coding in capitals":                dechunked,
	"chunks in HTTP/1.0":                  "HTTP/1.0 has no chunks: " + strict,
	"a method in small letters":           "Methods are case-sensitive, and any token is a method. nginx allows capitals only.",
	"CONNECT":                             "Neither Quell nor nginx is a forward proxy. HAProxy passes CONNECT on.",
	"TRACE":                               "Instances decide which methods they allow. nginx forbids TRACE.",
	"OPTIONS of the server":               "It is for an instance like any other request. nginx does not know the form.",
	"the preface of HTTP/2":               "nginx needs `http2` at the listener. With `balancer.http2: false` Quell answers 505.",
	"PRI behind another request":          statusOnly,
	"HTTP/0.9":                            "nginx still answers HTTP/0.9.",
	"HTTP/2.0 as text":                    "HTTP/2 is not written as text. HAProxy takes it for HTTP/1.1.",
	"the absolute form": "RFC 9112, section 3.2.1: a request to an origin server has the origin form. HAProxy " +
		"passes the absolute form on.",
	"the absolute form with another host": "RFC 9112, section 3.2.2: the host of the target counts, and the field is replaced. " +
		"nginx passes the field on.",
	"the absolute form of https": "As above.",
	"a target with a fragment":   "A request's target has no fragment (RFC 9112, section 3.2).",
	"a broken escape in a path":  strict + " In a query, everything is passed on unchanged.",
	"bytes beyond ASCII in a target": "A target has ASCII only. Quell escapes other bytes, nginx passes them on, HAProxy " +
		"refuses them.",
	"a target of 100,000 bytes": statusOnly,
	"no host in HTTP/1.1":       "HTTP/1.1 needs a host (RFC 9112, section 3.2).",
	"no host in HTTP/1.0": "Quell sends HTTP/1.1, which needs a host, so it sends an empty one, or " +
		"balancer.default_host.",
	"the same host twice":    "RFC 9112, section 3.2: a request with two hosts gets 400.",
	"a host with a blank":    strict,
	"a host with a path":     strict,
	"a folded field":         "RFC 9112, section 5.2, allows both. A fold can hide a length.",
	"a line without a colon": strict,
	"a name with an underscore": "nginx drops it, because programs often cannot tell it from a hyphen. Quell does so for " +
		"fields about the client.",
	"a NUL in a value":               strict,
	"a control character in a value": strict,
	"a field of 30,000 bytes":        bufferSize,
	"a field of 100,000 bytes":       statusOnly,
	"fields that Connection names":   hopByHopWhy,
	"Connection names a field about the client": "The field names what the proxy set itself. HAProxy passes it on, and an instance " +
		"that obeys it " +
		"forgets its client.",
	"the field Keep-Alive":               hopByHopWhy,
	"a wish for trailers":                "Quell passes trailers on, so it passes the wish on as well.",
	"a client that names another client": cannotTrust,
	"another client with an underscore":  cannotTrust,
	"the field Forwarded":                cannotTrust,
	"a password for a proxy":             "It is for the proxy. " + hopByHopWhy,
	"Expect: 100-continue": "Quell asks the instance and waits for its 100 for 1 s. nginx answers " +
		"100 itself. HAProxy leaves it to the instance.",
	"an unknown expectation": "RFC 9110, section 10.1.1, allows 417.",
	"a WebSocket whose client closes its sending side": "nginx ends a tunnel in both directions at once. Quell waits for " +
		"balancer.timeouts.half_closed.",
	"an upgrade to h2c": "Requests of a protocol that the balancer does not know would pass it " +
		"unseen (balancer.upgrades).",
	"an upgrade to h2c or WebSocket":                "Only the protocol that is allowed is passed on.",
	"Upgrade without Connection":                    "Without Connection it is no wish to upgrade (RFC 9110, section 7.8).",
	"an instance that changes the protocol unasked": "Nobody asked for it (RFC 9110, section 15.2.2). nginx passes it on.",
	"a trailer of an answer":                        "nginx drops trailers of answers.",
	"a trailer that was not announced":              "nginx drops trailers of answers.",
	"an answer to the connection's end": "Quell and nginx turn it into chunks, so that the client's connection " +
		"is kept.",
	"an answer of HTTP/1.0":          "As above.",
	"an answer with two lengths":     strict + " nginx takes the last one.",
	"an answer with a broken length": strict,
	"a chunk of an answer that is no number": "HAProxy had the chunk in its buffer. Quell and nginx had begun the " +
		"answer, so they can only end it.",
	"an answer that is no HTTP": "nginx takes it for HTTP/0.9.",
	"an answer of status 99":    "A status has three digits (RFC 9110, section 15).",
	"a folded field of an answer": "RFC 9112, section 5.2, allows a proxy to refuse it, or to write blanks " +
		"instead.",
	"a field of an answer without a colon":  strict,
	"a NUL in an answer":                    strict,
	"fields of one connection in an answer": hopByHopWhy,
	"a field of an answer of 100,000 bytes": "The head of an answer may have 1 MiB in Quell, 16 KB in HAProxy and 4 " +
		"KB in nginx.",
	"an early hint":                         silent1xx,
	"an early hint for HTTP/1.0":            "HTTP/1.0 has no interim answers (RFC 9110, section 15.2).",
	"100 that nobody expected":              silent1xx,
	"102":                                   silent1xx,
	"a client that closes its sending side": ownerClosed,
	"a client that closes its sending side behind a body": ownerClosed,
	"a client that ends in the midst of a body":           "Quell says that the request was broken.",
	"a client that ends in the midst of chunks":           "Quell says that the request was broken.",
	"a client that ends in the midst of a head":           "Quell and HAProxy say that the request was broken.",
	"a client that says nothing":                          "HAProxy answers without a request.",
	"a client that leaves while it waits": "HAProxy cannot tell it from a client that closed only its sending " +
		"side, and waits. Quell waits for balancer.timeouts.half_closed.",
	"a client that connects and stays silent": "HAProxy answers without a request.",
	"a client that stalls in a method":        "HAProxy answers 408. Quell and nginx close the connection.",
	"a client that stalls in a head":          "HAProxy answers 408. Quell and nginx close the connection.",
	"a client that stalls in a body": "Quell answers 408 and closes the connection. HAProxy waits for the " +
		"instance while the client stalls.",
	"an answer before the body has come": "The rest of the body may follow, so Quell and nginx close the " +
		"connection. HAProxy reads on.",
}
