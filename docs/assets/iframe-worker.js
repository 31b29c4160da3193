// Search runs in a worker, and browsers start no worker from a file on disk: there a hidden frame serves as one.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.onmessage = this.onerror = null
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.append(this.frame)
      this.inside = this.frame.contentWindow
      this.inside.postMessage = (data) => this.pass(data, this)
      const script = this.inside.document.createElement("script")
      script.src = url
      script.onload = () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach((data) => this.postMessage(data))
      }
      script.onerror = (event) => this.onerror?.(event)
      this.inside.document.body.append(script)
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.pass(data, this.inside)
    }
    pass(data, to) {
      const copy = structuredClone(data) // as between a page and a worker: neither sees what the other changes
      setTimeout(() => to.onmessage?.({ data: copy }))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
