package controller

// Reporter is a scaler that may have problems that a person should know about.
type Reporter interface {
	Report() error
}

// askScaler asks the scaler for problems that it reports, counts them and shows them.
func (c *group) askScaler() {
	if r, ok := c.opts.Scaler.(Reporter); ok {
		if err := r.Report(); err != nil {
			c.failed("scaler", err)
		}
	}
}
